package laravel

import "github.com/redis/go-redis/v9"

// The scripts change no key's name and no format of Laravel's, and PHP workers
// may take turns with them. Each looks first and writes last, so that an error
// inside one leaves every job where it was: Redis does not undo what a script has
// written, so the lengths of keys are asked for before the first write where one of
// another type would stop it half-way. All times are of Redis's own clock,
// in whole seconds as Laravel's are: starts are rounded down, ends up.
//
// A lease of zabor's ends half a second before its second. Nobody who compares
// whole seconds, as Laravel does, can tell, and whoever looks can tell it from
// that of a PHP worker.
var (
	reserveScript = redis.NewScript(`
-- Moves what is due to the list and reserves jobs from the head of the list.
-- KEYS[1] list  KEYS[2] :delayed  KEYS[3] :reserved  KEYS[4] :notify
-- KEYS[5] list of payloads that cannot be decoded
-- KEYS[6] what this worker's last reserve gave: its number, and each payload
-- behind its length
-- ARGV[1] lease in seconds, may have a fraction
-- ARGV[2] how many due jobs are moved at most, and as many lost ones
-- ARGV[3] 1: the payloads that were moved are told
-- ARGV[4] number of this reserve, of 16 digits, above those of all earlier ones;
-- the same number again: the reply was lost
-- ARGV[5] how many jobs are wanted at most
-- ARGV[6] how long KEYS[6] is kept, in milliseconds
-- Returns {"job", payload, member of :reserved} or {"dead", payload, reason} for
-- each job, and {"moved", payload, ""} for each that was moved, in one list.

-- only returns where the value of the text's only key "attempts" begins, at
-- whatever depth. Nearly every payload has just one.
local function only(text)
  local _, q = text:find('"attempts"', 1, true)
  if q and not text:find('"attempts"', q, true) then return text:match('^%s*:%s*()', q + 1) end
end

-- last returns where the value of the last key "attempts" of the outermost
-- object begins. The text is known to be JSON.
local function last(text)
  local found, depth, at = nil, 0, 1
  while true do
    local i = text:find('["{}%[%]]', at)
    if not i then return found end
    local c = text:byte(i)
    at = i + 1
    if c == 34 then -- "
      local q = text:find('["\\]', at)
      while text:byte(q) == 92 do -- \
        q = text:find('["\\]', q + 2)
      end
      if depth == 1 and q - i == 9 and text:sub(i, q) == '"attempts"' then
        found = text:match('^%s*:%s*()', q + 1) or found
      end
      at = q + 1
    elseif c == 123 or c == 91 then -- { [
      depth = depth + 1
    else
      depth = depth - 1
    end
  end
end

-- raise returns the text with the number at a place raised by one, or nil if
-- that is not the number that a reader of the JSON finds in attempts: then the
-- reader does not find another number that is put in its place.
local function raise(text, at)
  local token = at and (text:match('^-?%d[%d.eE+-]*', at) or text:match('^"(%d+)"', at))
  local n = tonumber(token or nil)
  if not n or n + 1 == n then return nil end
  local raised = string.format('%.14g', n + 1)
  local first = text:byte(at) == 34 and at + 1 or at
  local before, after = text:sub(1, first - 1), text:sub(first + #token)
  local other = '90071992547'
  while text:find(other, 1, true) do other = tostring(tonumber(other) + 1) end
  local ok, job = pcall(cjson.decode, before .. other .. after)
  if not ok or type(job) ~= 'table' or tonumber(job.attempts) ~= tonumber(other) then return nil end
  if tonumber(raised) == n + 1 then return before .. raised .. after end
end

-- count returns the payload with attempts raised by one, every other byte as it
-- is: cjson would round long numbers and turn [] into {}. Or nil and why not.
local function count(text)
  local raised = raise(text, only(text))
  if raised then return raised end
  local ok, job = pcall(cjson.decode, text)
  if not ok then return nil, 'not JSON: ' .. job end
  if type(job) ~= 'table' then return nil, 'not a JSON object' end
  local kind = type(job.attempts)
  if kind ~= 'number' and kind ~= 'string' then return nil, 'without a number of attempts' end
  raised = raise(text, last(text))
  if not raised then return nil, 'with attempts that cannot be counted' end
  return raised
end

local number = redis.call('GETRANGE', KEYS[6], 0, 15)
if number > ARGV[4] then return {} end -- it comes after a later one, and nobody waits for it
local time = redis.call('TIME')
local ends = math.ceil(time[1] + time[2] / 1000000 + ARGV[1]) - 0.5
local given = {}
local function give(kind, payload, more)
  local n = #given
  given[n + 1], given[n + 2], given[n + 3] = kind, payload, more
end

if number == ARGV[4] then
  local text, at = redis.call('GET', KEYS[6]), 17
  while at <= #text do
    local size, from = text:match('^(%d+) ()', at)
    at = from + size
    local payload = text:sub(from, at - 1)
    local member = count(payload)
    if redis.call('ZREM', KEYS[3], member) == 1 then
      redis.call('ZADD', KEYS[3], ends, member)
      give('job', payload, member)
    end
  end
  return given
end

local due = {redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', time[1], 'LIMIT', 0, ARGV[2]), redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', time[1], 'LIMIT', 0, ARGV[2])}
local payloads = redis.call('LRANGE', KEYS[1], 0, ARGV[5] - 1)
if #due[1] + #due[2] + #payloads == 0 then return given end
redis.call('LLEN', KEYS[4])
redis.call('LLEN', KEYS[5])
for i, moved in ipairs(due) do
  if #moved > 0 then
    redis.call('ZREMRANGEBYRANK', KEYS[i + 1], 0, #moved - 1)
    redis.call('RPUSH', KEYS[1], unpack(moved))
    for k = 1, #moved do
      if ARGV[3] == '1' then give('moved', moved[k], '') end
      moved[k] = '1'
    end
    redis.call('RPUSH', KEYS[4], unpack(moved))
  end
end
if #payloads < tonumber(ARGV[5]) and #due[1] + #due[2] > 0 then payloads = redis.call('LRANGE', KEYS[1], 0, ARGV[5] - 1) end

local members, memory, dead = {}, {ARGV[4]}, {}
for _, payload in ipairs(payloads) do
  local ok, member, reason = pcall(count, payload)
  if not ok then member, reason = nil, 'not read: ' .. member end
  if member then
    members[#members + 1], members[#members + 2] = ends, member
    local n = #memory
    memory[n + 1], memory[n + 2], memory[n + 3] = #payload, ' ', payload
    give('job', payload, member)
  else
    dead[#dead + 1] = payload
    give('dead', payload, reason)
  end
end
for _, key in ipairs({KEYS[1], KEYS[4]}) do
  if #payloads == 1 then redis.call('LPOP', key) else redis.call('LTRIM', key, #payloads, -1) end -- the one is cheaper
end
if #dead > 0 then redis.call('RPUSH', KEYS[5], unpack(dead)) end
if #members > 0 then
  redis.call('ZADD', KEYS[3], unpack(members))
  redis.call('SET', KEYS[6], table.concat(memory), 'PX', ARGV[6])
end
return given
`)

	laterScript = redis.NewScript(`
-- Releases a job that is still reserved, with the payload that it had before.
-- KEYS[1] :delayed  KEYS[2] :reserved
-- ARGV[1] member of :reserved  ARGV[2] payload  ARGV[3] delay in seconds, may have a fraction
-- Returns 1, or 0 if the job was not reserved any more: nothing was done then.
redis.call('ZCARD', KEYS[1])
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
local now = redis.call('TIME')
redis.call('ZADD', KEYS[1], math.ceil(now[1] + now[2] / 1000000 + ARGV[3]), ARGV[2])
return 1
`)

	putBackScript = redis.NewScript(`
-- Puts a job that is still reserved back at the head of the list.
-- KEYS[1] list  KEYS[2] :reserved  KEYS[3] :notify
-- ARGV[1] member of :reserved  ARGV[2] payload
-- Returns 1, or 0 if the job was not reserved any more: nothing was done then.
redis.call('LLEN', KEYS[1])
redis.call('LLEN', KEYS[3])
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
redis.call('LPUSH', KEYS[1], ARGV[2])
redis.call('RPUSH', KEYS[3], '1')
return 1
`)

	pushScript = redis.NewScript(`
-- Queues a payload, unless the same bytes are queued already. The comparison
-- needs Redis 6.0.6; an older one queues without it.
-- KEYS[1] list  KEYS[2] :notify  KEYS[3] :delayed
-- ARGV[1] payload  ARGV[2] delay in seconds, may have a fraction; nothing or 0: none
-- Returns 1, or 0 if it was there already.
local delay = tonumber(ARGV[2] or 0)
redis.call('LLEN', KEYS[2])
if redis.call('ZSCORE', KEYS[3], ARGV[1]) then return 0 end
if delay > 0 then
  local now = redis.call('TIME')
  redis.call('ZADD', KEYS[3], math.ceil(now[1] + now[2] / 1000000 + delay), ARGV[1])
  return 1
end
local at = redis.pcall('LPOS', KEYS[1], ARGV[1])
if type(at) == 'number' then return 0 end
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('RPUSH', KEYS[2], '1')
return 1
`)

	replaceScript = redis.NewScript(`
-- Removes a job that is still reserved and queues a payload in its place.
-- KEYS[1] :reserved  KEYS[2] list  KEYS[3] :notify  KEYS[4] :delayed, the last three
-- of the queue that the payload goes to
-- ARGV[1] member of :reserved  ARGV[2] payload
-- ARGV[3] delay in seconds, may have a fraction; 0: none
-- Returns 1, or 0 if the job was not reserved any more: nothing was done then.
for i, ask in ipairs({'ZCARD', 'LLEN', 'LLEN', 'ZCARD'}) do redis.call(ask, KEYS[i]) end
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
local delay = tonumber(ARGV[3])
if delay > 0 then
  local now = redis.call('TIME')
  redis.call('ZADD', KEYS[4], math.ceil(now[1] + now[2] / 1000000 + delay), ARGV[2])
  return 1
end
redis.call('RPUSH', KEYS[2], ARGV[2])
redis.call('RPUSH', KEYS[3], '1')
return 1
`)

	renewScript = redis.NewScript(`
-- Starts the lease of a job anew. It removes and adds rather than change the
-- score: with its memory full, Redis refuses a script only its first write, and
-- only if that adds something.
-- KEYS[1] :reserved
-- ARGV[1] member of :reserved  ARGV[2] lease in seconds, may have a fraction
-- Returns 1, or 0 if the job was not reserved any more: nothing was done then.
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
local now = redis.call('TIME')
redis.call('ZADD', KEYS[1], math.ceil(now[1] + now[2] / 1000000 + ARGV[2]) - 0.5, ARGV[1])
return 1
`)

	foreignScript = redis.NewScript(`
-- Looks for jobs that were not reserved by zabor. It reads only.
-- KEYS[1] :reserved
-- ARGV[1] how many jobs are looked at, those whose leases end last
-- ARGV[2] how many are returned at most
-- Returns members whose lease ends at a whole second.
local found = {}
local all = redis.call('ZREVRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')
for i = 1, #all, 2 do
  if tonumber(all[i + 1]) % 1 == 0 and #found < tonumber(ARGV[2]) then found[#found + 1] = all[i] end
end
return found
`)

	depthScript = redis.NewScript(`
-- KEYS[1] list  KEYS[2] :delayed  KEYS[3] :reserved
-- KEYS[4] list of payloads that cannot be decoded
-- Returns how many jobs are ready, delayed, reserved and undecodable, at one moment.
return {redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3]), redis.call('LLEN', KEYS[4])}
`)
)
