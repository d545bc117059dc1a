-- Ends the guard of a load that has failed, so that the next process need not wait.
--
-- KEYS[1]  the reservation
-- ARGV[1]  the reservation as this load has made it
--
-- Reply: 1 ended, 0 not this load's any more.
--
-- Safe to repeat: it removes only what is exactly its own.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
