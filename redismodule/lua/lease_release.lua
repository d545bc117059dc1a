-- Gives a lease up if the holder still has it, and says what it found.
--
-- KEYS[1]  the lease
-- KEYS[2]  tombstone of this very call: it exists once the call has removed the lease
-- ARGV[1]  how long the tombstone is kept, in ms
-- ARGV[2]  holder
--
-- Reply: {1, ''} removed, {0, present holder or ''} not removed.
--
-- Safe to repeat: the second try of a call that removed the lease finds its tombstone
-- and answers as the first time, whoever has claimed the lease since.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return {1, ''}
end
local holder = redis.call('HGET', KEYS[1], 'holder')
if holder ~= ARGV[2] then
  return {0, holder or ''}
end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[1])
redis.call('DEL', KEYS[1])
return {1, ''}
