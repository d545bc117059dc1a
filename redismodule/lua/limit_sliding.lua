-- Takes n tokens from a sliding window, counted in two windows aligned to the clock:
-- the present one, and the one before by the part of it that still overlaps.
--
-- KEYS[1]  the counters: "<number of the window> <its tokens> <tokens of the one before>"
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
local offset = math.fmod(now, window)
local number = (now - offset) / window
local slack = math.min(max * 1e-9, 0.001) -- what doubles may be off by

local current, before, heal = 0, 0, false
if stored then
  local w, c, b = string.match(stored, '^(%d+) (%d+) (%d+)$')
  if not w then
    return redis.error_reply('WRONGTYPE the key does not hold a sliding window')
  end
  heal = tonumber(w) > number
  if heal or tonumber(w) == number then
    current, before = tonumber(c), tonumber(b)
  elseif tonumber(w) == number - 1 then
    before = tonumber(c)
  end
end

-- us until k tokens are there, if nobody takes any
local function wait(k)
  local room = max - k - current
  if before * (window - offset) / window <= room + slack then
    return 0
  elseif room >= 0 then
    return math.max(1, math.ceil(window * (1 - room / before)) - offset)
  end
  return window - offset + math.max(0, math.ceil(window * (1 - (max - k) / current)))
end

local taken = wait(n) == 0
if taken then
  current = current + n
else
  heal = heal or redis.call('PTTL', KEYS[1]) == -1
end
local left = math.max(0, math.floor(max - current - before * (window - offset) / window + slack))
local full = 0
if current > 0 then
  full = 2 * window - offset
elseif before > 0 then
  full = window - offset
end
if taken or heal then
  redis.call('SET', KEYS[1], string.format('%.0f %.0f %.0f', number, current, before),
    'PX', string.format('%.0f', math.ceil(full / 1000)))
end
return {taken and 1 or 0, left, wait(n), full, left == 0 and wait(1) or 0}
