-- Gives a lease up if the holder still has it, and says what it found.
--
-- KEYS[1]  the lease
-- KEYS[2]  the answer of this very call, once it is given: 1, or 0 and the present holder
-- ARGV[1]  how long KEYS[2] is kept, in ms
-- ARGV[2]  1 when an earlier try of this call may still arrive, else 0
-- ARGV[3]  holder
--
-- Reply: {1, ''} removed, {0, present holder or ''} not removed.
--
-- Safe to repeat: a call that removed the lease left its answer, and so did every second
-- try. Any other try gives that and changes nothing, whoever has claimed the lease since.
local answer = redis.call('GET', KEYS[2])
if answer then
  return {tonumber(string.sub(answer, 1, 1)), string.sub(answer, 2)}
end
local holder = redis.call('HGET', KEYS[1], 'holder')
if holder ~= ARGV[3] then
  if ARGV[2] == '1' then
    redis.call('SET', KEYS[2], '0' .. (holder or ''), 'PX', ARGV[1])
  end
  return {0, holder or ''}
end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[1])
redis.call('DEL', KEYS[1])
return {1, ''}
