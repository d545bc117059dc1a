-- Reads a value, or else reserves the right to store the one that is going to be loaded.
--
-- KEYS[1]  the value
-- KEYS[2]  the reservation: "<token>:<end of the guard, server clock, ms>:<guard, ms>"
-- ARGV[1]  guard in ms: how long the others wait for this load; 0 for none
-- ARGV[2]  ttl of the reservation in ms
-- ARGV[3]  token for a new reservation
--
-- Reply: the value; or {token, reservation} the caller may load; or, with a guard, the
-- ms that another process's load is still waited for.
--
-- A reservation is shared by all loads that begin while it stands: whatever voids it
-- comes after the beginning of each, so that none may store. Were it replaced, loads that
-- follow each other closely would keep each other from ever storing.
--
-- Safe to repeat: a reservation that nobody uses lapses.
local value = redis.call('GET', KEYS[1])
if value then
  return value
end
local held = redis.call('GET', KEYS[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local token, ends, guard
if held then
  token, ends, guard = string.match(held, '^(%w+):(%d+):(%d+)$')
end
if tonumber(ARGV[1]) > 0 then
  local left = tonumber(ends or '0') - now
  if left > 0 and left <= tonumber(guard) then -- more: the clock has stepped back
    return left
  end
  ends, guard = string.format('%.0f', now + ARGV[1]), ARGV[1]
end
token = token or ARGV[3]
local reservation = token .. ':' .. (ends or '0') .. ':' .. (guard or '0')
redis.call('SET', KEYS[2], reservation, 'PX', ARGV[2])
return {token, reservation}
