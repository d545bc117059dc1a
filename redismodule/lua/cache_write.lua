-- Stores a value and voids the loads that have begun before.
--
-- KEYS[1]  the value
-- KEYS[2]  the reservation
-- ARGV[1]  mode: always, add (only if there is none) or replace (only if there is one)
-- ARGV[2]  ttl in ms
-- ARGV[3]  value
--
-- Reply: 1 stored, 0 not.
--
-- Safe to repeat in the mode always. An add or replace that is repeated answers by what
-- it finds then.
if ARGV[1] ~= 'always' and redis.call('EXISTS', KEYS[1]) ~= (ARGV[1] == 'add' and 0 or 1) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
redis.call('DEL', KEYS[2])
return 1
