-- One step of one operation's record.
--
-- KEYS[1]  the record: a JSON string with exactly the eight fields, and the meaning of
--          each, of lazy-layers-cache/transactions, which may read and write it too
-- KEYS[2]  the attempts, which that record has no room for:
--          "<attempt> <owner> <1 if that owner abandoned> <1 if an earlier attempt neither
--          completed nor abandoned>". Written from the second attempt on and by an abandon;
--          it ends with the record or before it. Where it is missing or names another
--          owner, the answer errs towards "reconcile"
-- KEYS[3]  a key that never exists
-- ARGV[1]  begin, renew, complete, abandon or read
-- ARGV[2]  how this owner's record begins, up to its state; the caller has checked its
--          parts, which are of charsets that JSON takes as they are
-- ARGV[3]  owner, the attempt's token
-- ARGV[4]  lease in ms   ARGV[5]  retention in ms
-- ARGV[6]  result reference, of complete
--
-- Reply: one string, the outcome and its fields with spaces between.
--   begin     acquired owner remaining attempt takeover | in_progress remaining |
--             completed ref | conflict | stale_token (this owner's lease has expired)
--   renew     renewed lease | lost | conflict
--   complete  completed ref | lost | conflict
--   abandon   abandoned | lost | conflict
--   read      missing | in_progress remaining | recovery_required | completed ref | conflict
--   any       invalid_record: the key holds something else; nothing was written
--
-- Safe to repeat: an owner that begins again has what it had; renew gives the term anew;
-- complete with the same reference and abandon by the same owner answer as before.
--
-- Every write is a SET, and the record is written last, so that an error reply means that
-- it was not: a server without memory refuses a SET as a script's first write, and no
-- later one. An answer without a write deletes KEYS[3]: that
-- changes nothing, and a server that has become a replica refuses it, so that a former
-- primary never answers from what it remembers.

local command, head, owner = ARGV[1], ARGV[2], ARGV[3]
local call = redis.call

local time = call('TIME')
-- The server's time in ms, as text of 13 digits: those compare as the numbers do.
local stamp = time[1] .. string.sub('00000' .. time[2], -6, -4)

-- The short way of a first attempt: there is no record. What keeps this write away, another
-- record or an error, is met again below. Lua writes whole numbers of up to 14 digits as
-- they are; format does so faster.
if command == 'begin' then
  local set = redis.pcall('SET', KEYS[1], head .. 'pending","leaseUntilMs":"'
    .. string.format('%d","retainUntilMs":"%d', stamp + ARGV[4], stamp + ARGV[5]) .. '","resultRef":""}', 'PX', ARGV[5], 'NX')
  if set and set.ok then return 'acquired ' .. owner .. ' ' .. ARGV[4] .. ' 1 0' end
end

local holder, state, ends, kept, result -- what the record says

local raw = call('GET', KEYS[1])
-- The short way, for this owner's pending record as this script writes it.
if raw and raw:find(head, 1, true) == 1 then
  ends, kept = raw:match('^pending","leaseUntilMs":"([1-9]%d*)","retainUntilMs":"([1-9]%d*)","resultRef":""}$', #head + 1)
  -- The shortest, of a completion within the lease: what follows would write the same.
  if command == 'complete' and ends and #ends == 13 and #kept == 13 and ends > stamp and kept >= ends then
    local keep = string.format('%d', stamp + ARGV[5])
    if kept <= keep then
      call('SET', KEYS[1], head .. 'completed","leaseUntilMs":"0","retainUntilMs":"' .. keep
        .. '","resultRef":"' .. ARGV[6] .. '"}', 'PX', ARGV[5])
      return 'completed ' .. ARGV[6]
    end
  end
  if ends and #ends < 16 and #kept < 16 and tonumber(kept) >= tonumber(ends) then
    state, holder, ends, kept = 'pending', owner, tonumber(ends), tonumber(kept)
  end
end

local now = tonumber(stamp)
local function answer(reply)
  call('DEL', KEYS[3])
  return reply
end
-- The long way, for every other one: the reference's have their fields in any order and
-- their slashes escaped.
if raw and not state then
  local fingerprint, durable = head:match('^{"schema":1,"fingerprint":"(%x+)","durableId":"([^"]+)"')
  local function hex64(s)
    return type(s) == 'string' and #s == 64 and not s:find('[^0-9a-f]')
  end
  local function reference(s, most)
    return type(s) == 'string' and #s > 0 and #s <= most and not s:find('[^%w_:/%%.%-]')
  end
  local function millis(s)
    if type(s) ~= 'string' or #s > 16 or not s:find('^%d+$') or s:find('^0.') then return nil end
    return tonumber(s)
  end
  local ok, r = false, nil
  if #raw <= 2048 then ok, r = pcall(cjson.decode, raw) end
  if not ok or type(r) ~= 'table' then return answer('invalid_record') end
  local fields = 0
  for _ in pairs(r) do fields = fields + 1 end
  holder, state, ends, kept, result = r.owner, r.state, millis(r.leaseUntilMs), millis(r.retainUntilMs), r.resultRef
  -- What equals an argument is well formed: the caller has checked those.
  local sound = fields == 8 and r.schema == 1 and ends and kept and kept > 0
    and (r.fingerprint == fingerprint or hex64(r.fingerprint))
    and (r.durableId == durable or reference(r.durableId, 128))
    and (holder == owner or hex64(holder))
  if state == 'pending' then
    sound = sound and ends > 0 and kept >= ends and result == ''
  else
    sound = sound and state == 'completed' and ends == 0 and reference(result, 256)
  end
  if not sound then return answer('invalid_record') end
  if r.fingerprint ~= fingerprint or r.durableId ~= durable then return answer('conflict') end
end

if state == 'completed' then
  if command == 'renew' or command == 'abandon' then return answer('lost') end
  if command == 'complete' and result ~= ARGV[6] then return answer('conflict') end
  return answer('completed ' .. result)
end

local remaining = state and math.max(0, ends - now) or 0

if command == 'read' then
  if not state then return answer('missing') end
  if remaining == 0 then return answer('recovery_required') end
  return answer(string.format('in_progress %.0f', remaining))
end

-- The record's time to live and its end. Retention only grows, except that it
-- never passes 30 days from now: it would after the clock stepped back.
local function term()
  local keep = now + ARGV[5]
  if not kept or kept <= keep then return ARGV[5], keep end
  keep = math.min(kept, now + 2592000000)
  return '' .. (keep - now), keep
end
local function write(as, till, ref)
  local px, keep = term()
  call('SET', KEYS[1], head .. as .. '","leaseUntilMs":"' .. till .. '","retainUntilMs":"' .. keep
    .. '","resultRef":"' .. ref .. '"}', 'PX', px)
end

if command == 'begin' and not state then
  write('pending', now + ARGV[4], '') -- the error that the short way met
  return 'acquired ' .. owner .. ' ' .. ARGV[4] .. ' 1 0'
end
if command == 'complete' or command == 'renew' then
  if holder ~= owner or remaining == 0 then return answer('lost') end
  if command == 'complete' then
    write('completed', 0, ARGV[6])
    return 'completed ' .. ARGV[6]
  end
  local known = call('GET', KEYS[2])
  if known then call('SET', KEYS[2], known, 'PX', (term())) end
  write('pending', now + ARGV[4], '')
  return 'renewed ' .. ARGV[4]
end

-- The attempts, as far as they are about the record's present owner. A clock that stepped
-- forward and back can have ended a record and left them: the same token's next record is
-- an abandoned one only if it says so itself.
local function attempts()
  local known = call('GET', KEYS[2])
  local n, who, abandoned, earlier
  if known then n, who, abandoned, earlier = known:match('^(%d+) (%x+) ([01]) ([01])$') end
  if not who then return 1, false, false end
  if who ~= holder then return n + 1, false, true end -- the reference took over since
  return tonumber(n), abandoned == '1' and ends == 1, earlier == '1'
end
local function remember(count, abandoned, earlier, px)
  call('SET', KEYS[2], string.format('%d %s %d %d', count, owner, abandoned, earlier and 1 or 0), 'PX', px)
end

if command == 'begin' then
  if remaining > 0 and holder ~= owner then return answer(string.format('in_progress %.0f', remaining)) end
  local acquired = 'acquired %s %s %d %d'
  local count, abandoned, earlier = attempts()
  if remaining > 0 then return answer(string.format(acquired, owner, string.format('%.0f', remaining), count, earlier and 1 or 0)) end
  -- An attempt whose lease has expired never comes back to life, so that a request that
  -- was long on its way cannot take the operation for nobody.
  if holder == owner then return answer('stale_token') end
  local takeover = earlier or not abandoned
  remember(count + 1, 0, takeover, (term()))
  write('pending', now + ARGV[4], '')
  return string.format(acquired, owner, ARGV[4], count + 1, takeover and 1 or 0)
end

-- abandon
if holder ~= owner then return answer('lost') end
local count, abandoned, earlier = attempts()
if remaining == 0 then return answer(abandoned and 'abandoned' or 'lost') end
remember(count, 1, earlier, (term()))
write('pending', 1, '') -- expired by any clock
return 'abandoned'
