-- Stores a loaded value if nothing has changed since its load began.
--
-- KEYS[1]  the value
-- KEYS[2]  the reservation
-- ARGV[1]  token of the reservation when the load began
-- ARGV[2]  ttl in ms
-- ARGV[3]  value
--
-- Reply: 1 stored, 0 not: a write or a delete has voided the reservation, another load
-- has stored, or the reservation has lapsed.
--
-- Safe to repeat: storing uses the reservation up.
local held = redis.call('GET', KEYS[2])
if not held or string.match(held, '^(%w+):') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
redis.call('DEL', KEYS[2])
return 1
