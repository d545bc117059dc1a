-- Takes n tokens from a window that begins with its first hit.
--
-- KEYS[1]  the window: "<tokens spent> <end on the server's clock, us>"
-- ARGV[1]  n
-- ARGV[2]  max
-- ARGV[3]  window in ms
--
-- Reply: {1 taken or 0 not, tokens left, us until n more can be there, us until the
-- budget is full, us until one token can be there if none is left now}.
--
-- Not safe to repeat: every call that takes counts. A denial writes nothing, unless the
-- key needs healing: without a TTL, or from a clock that has since stepped back.
local n, max, window = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] * 1000
local stored = redis.call('GET', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local spent, ends, heal = 0, now + window, false
if stored then
  local s, e = string.match(stored, '^(%d+) (%d+)$')
  if not s then
    return redis.error_reply('WRONGTYPE the key does not hold a fixed window')
  end
  if tonumber(e) > now then
    spent = tonumber(s)
    heal = tonumber(e) > ends
    ends = math.min(ends, tonumber(e))
  end
end

local taken = n <= max - spent
if taken then
  spent = spent + n
else
  heal = heal or redis.call('PTTL', KEYS[1]) == -1
end
local left, rest = max - spent, ends - now
if taken or heal then
  redis.call('SET', KEYS[1], string.format('%.0f %.0f', spent, ends), 'PX', string.format('%.0f', math.ceil(rest / 1000)))
end
return {taken and 1 or 0, left, n > left and rest or 0, rest, left == 0 and rest or 0}
