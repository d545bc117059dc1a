-- Claims a lease, renews it, or takes it over.
--
-- KEYS[1]  the lease: hash of holder, instance, acquired_at (server clock, ms)
-- KEYS[2]  what this very call found when it was applied: the previous holder
-- ARGV[1]  mode: claim (free or mine), renew (mine only), takeover (whoever has it)
-- ARGV[2]  ttl in ms
-- ARGV[3]  instance id of the caller
-- ARGV[4]  how long KEYS[2] is kept, in ms
-- ARGV[5]  holder
--
-- Reply: {1, previous holder or ''} held by the caller now, or {0, present holder or ''}.
--
-- Safe to repeat: a call that took the lease from nobody or from another left KEYS[2],
-- which its second try answers with, whoever has the lease by then. A refresh of one's
-- own lease does it again.
local found = redis.call('GET', KEYS[2])
if found then
  return {1, found}
end
local holder = redis.call('HGET', KEYS[1], 'holder')
if holder == ARGV[5] and ARGV[1] ~= 'takeover' then
  redis.call('HSET', KEYS[1], 'instance', ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1, holder}
end
if ARGV[1] == 'renew' or (ARGV[1] == 'claim' and holder) then
  return {0, holder or ''}
end
if holder ~= ARGV[5] then
  local now = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'acquired_at', string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000)))
end
redis.call('HSET', KEYS[1], 'holder', ARGV[5], 'instance', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], holder or '', 'PX', ARGV[4])
return {1, holder or ''}
