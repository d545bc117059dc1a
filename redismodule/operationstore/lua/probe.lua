-- What the operation script does, tried without a change: its keys are of a form that no
-- operation has.
--
-- KEYS     one of each kind of the operation script's
--
-- Reply: the keys, and after them the name of each command that failed and its error.
--
-- Safe to repeat: nothing is written. SET XX sets what exists, and nothing does.

local reply = {KEYS[1], KEYS[2], KEYS[3]}
local function try(name, ...)
  local result = redis.pcall(...)
  if type(result) == 'table' and result.err then
    reply[#reply + 1] = name
    reply[#reply + 1] = result.err
  end
end
try('get', 'GET', KEYS[1])
try('time', 'TIME')
try('set', 'SET', KEYS[1], '', 'XX', 'PX', '1')
try('del', 'DEL', KEYS[3])
return reply
