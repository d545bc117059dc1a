-- Gives a lock up if the token still holds it, and wakes those who wait for it.
--
-- KEYS[1]  the lock, see lock_acquire.lua
-- ARGV[1]  channel on which waiters listen
-- ARGV[2]  token of the holder
--
-- Reply: 1 freed, 2 kept until its minimum hold ends, 0 not held by this token.
--
-- Safe to repeat: the token is gone after the first time.
local call = redis.call
local held = call('GET', KEYS[1])
if not held then
  return 0
end
-- Almost always there is no minimum hold and nobody waits, and a comparison tells all.
if string.sub(held, 1, #ARGV[2] + 3) ~= '0 ' .. ARGV[2] .. ' ' then
  local hold, waits, token, at, rest = string.match(held, '^(%d+)(w?) (%S+) (%S+)( .*)$')
  if token ~= ARGV[2] then
    return 0
  end
  if hold ~= '0' then
    local now = call('TIME')
    local left = math.ceil((tonumber(at) + hold * 1000 - now[1] * 1000000 - now[2]) / 1000)
    if left > 0 then
      -- A dash holds the place of the token. Nobody announces the end of the hold.
      call('SET', KEYS[1], hold .. ' - ' .. at .. rest, 'PX', math.min(left, call('PTTL', KEYS[1])))
      return 2
    end
  end
  -- Announced first, so that a user who may not publish is refused before anything is
  -- written; nobody sees the announcement before the script has ended.
  if waits == 'w' then
    call('PUBLISH', ARGV[1], '')
  end
end
call('DEL', KEYS[1])
return 1
