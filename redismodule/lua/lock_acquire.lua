-- Takes a lock, or says how long its present holder still has it.
--
-- KEYS[1]  the lock: "<minimum hold> <token> <acquired at> <fence> <instance>", the hold
--          in ms, instant and fence in microseconds of the server's clock. The hold ends
--          in a w when somebody waits for the release
-- KEYS[2]  the last fence given out for this key
-- ARGV[1]  ttl in ms
-- ARGV[2]  how the value begins: minimum hold in ms and token of the caller, which is new
--          for every acquire, each with a space behind it
-- ARGV[3]  retention of KEYS[2] in ms, 0 to give out no fence
-- ARGV[4]  how the value ends: a space and the instance id of the caller
-- ARGV[5]  anything, if the caller waits; else it is left out
--
-- Reply: the fence, as text, when taken (1 without one), or minus one minus the
-- remaining ms when held by another. WRONGTYPE, and nothing taken, when something else
-- wrote one of the keys.
--
-- Safe to repeat: a try that finds its own token was applied before and answers as the
-- first time, changing nothing. The first write is the one that takes the lock, so that
-- a refused write is proof that nothing was applied.
local call = redis.call
local now = call('TIME')
local us = now[2]
if #us < 6 then
  us = string.sub('00000' .. us, -6)
end
local at = now[1] .. us
local held = call('SET', KEYS[1], ARGV[2] .. at .. ' ' .. at .. ARGV[4], 'PX', ARGV[1], 'NX', 'GET')
if held then
  local hold, waits, token, rest, fence = string.match(held, '^(%d+)(w?) (%S+)( %S+ (%S+).*)$')
  if not token then
    return redis.error_reply('WRONGTYPE the key does not hold a lock')
  end
  if hold .. ' ' .. token .. ' ' == ARGV[2] then
    return fence
  end
  if ARGV[5] and waits == '' then
    call('SET', KEYS[1], hold .. 'w ' .. token .. rest, 'XX', 'KEEPTTL')
  end
  return -1 - math.max(call('PTTL', KEYS[1]), 0)
end
if ARGV[3] == '0' then
  return 1
end
-- The fence is the server's clock, or one more than the last where the clock has not
-- moved on: so it also grows across the loss of KEYS[2].
local last = redis.pcall('SET', KEYS[2], at, 'PX', ARGV[3], 'GET')
if type(last) == 'table' then -- an error
  call('DEL', KEYS[1])
  return last
end
if last and last >= at and tonumber(last) then -- of equal length for the next two centuries
  local fence = string.format('%.0f', tonumber(last) + 1)
  call('SET', KEYS[2], fence, 'PX', ARGV[3])
  call('SET', KEYS[1], ARGV[2] .. at .. ' ' .. fence .. ARGV[4], 'PX', ARGV[1])
  return fence
end
return at
