-- Claims a lease, renews it, or takes it over.
--
-- KEYS[1]  the lease: hash of holder, instance, acquired_at (server clock, ms)
-- KEYS[2]  the answer of this very call, once it is given: 1 or 0 and the holder
-- ARGV[1]  mode: claim (free or mine), renew (mine only), takeover (whoever has it)
-- ARGV[2]  ttl in ms
-- ARGV[3]  instance id of the caller
-- ARGV[4]  how long KEYS[2] is kept, in ms
-- ARGV[5]  1 when an earlier try of this call may still arrive, else 0
-- ARGV[6]  holder
--
-- Reply: {1, previous holder or ''} held by the caller now, or {0, present holder or ''}.
--
-- Safe to repeat: a call that took the lease from nobody or from another left its answer,
-- and so did every second try. Any other try gives that and changes nothing, whoever has
-- the lease by then.
local answer = redis.call('GET', KEYS[2])
if answer then
  return {tonumber(string.sub(answer, 1, 1)), string.sub(answer, 2)}
end
local holder = redis.call('HGET', KEYS[1], 'holder')
local held, remember = 1, ARGV[5] == '1'
if holder == ARGV[6] and ARGV[1] ~= 'takeover' then
  redis.call('HSET', KEYS[1], 'instance', ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
elseif ARGV[1] == 'renew' or (ARGV[1] == 'claim' and holder) then
  held = 0
else
  if holder ~= ARGV[6] then
    local now = redis.call('TIME')
    redis.call('HSET', KEYS[1], 'acquired_at', string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000)))
  end
  redis.call('HSET', KEYS[1], 'holder', ARGV[6], 'instance', ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  remember = true
end
if remember then
  redis.call('SET', KEYS[2], held .. (holder or ''), 'PX', ARGV[4])
end
return {held, holder or ''}
