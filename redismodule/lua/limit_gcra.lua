-- Takes n tokens from a bucket of max that refills evenly, max in each window (GCRA,
-- kept as the bucket's level instead of a theoretical arrival time).
--
-- KEYS[1]  the bucket: "<server clock, us> <tokens missing then, with fraction>"
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
local slack = math.min(max * 1e-9, 0.001) -- what doubles may be off by

local missing, heal = 0, false
if stored then
  local at, level = string.match(stored, '^(%d+) (%S+)$')
  if not at or not tonumber(level) then
    return redis.error_reply('WRONGTYPE the key does not hold a bucket')
  end
  heal = tonumber(at) > now
  missing = math.max(0, tonumber(level) - math.max(0, now - at) * max / window)
end

-- us until k tokens are there, if nobody takes any
local function wait(k)
  local lacking = missing + k - max
  return lacking > slack and math.ceil(lacking * window / max) or 0
end

local taken = wait(n) == 0
if taken then
  missing = missing + n
else
  heal = heal or redis.call('PTTL', KEYS[1]) == -1
end
local left = math.max(0, math.floor(max - missing + slack))
local full = math.ceil(missing * window / max)
if taken or heal then
  redis.call('SET', KEYS[1], string.format('%.0f %.17g', now, missing),
    'PX', string.format('%.0f', math.max(1, math.ceil(full / 1000))))
end
return {taken and 1 or 0, left, wait(n), full, left == 0 and wait(1) or 0}
