package messenger

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// A delivery is ours as long as the pending entry names our consumer and has the
// delivery counter that it had when we got it: whoever takes it over changes the
// one or raises the other. So a paused process and a lane that forgot to renew
// notice, even where another process has our consumer's name by now.
const owns = `
local function owns(stream, group, id, consumer, deliveries)
	local p = redis.call('XPENDING', stream, group, id, id, 1)
	return p[1] and p[1][2] == consumer and p[1][4] == tonumber(deliveries)
end
`

// reserve takes entries that have been idle for long enough, whoever had them, and
// then new ones.
//
//	KEYS[1] stream   KEYS[2] what this source's last reserve gave: a line each with
//	                 its number, its consumer, and the ids and delivery counters
//	ARGV[1] group    ARGV[2] our consumer
//	ARGV[3] number of this reserve, of 16 digits, above those of all earlier ones;
//	        the same number again: the reply was lost
//	ARGV[4] how many entries are wanted at most
//	ARGV[5] least idle time, ms
//	ARGV[6] cursor of the look for idle entries; empty: no look
//	ARGV[7] how long KEYS[2] is kept, ms
//
// It answers a list of {id, fields, deliveries}, the consumer that they belong to,
// the next cursor, the ids of pending entries that are no longer in the stream, which
// Redis has forgotten now, and the newest id in the stream. Where the reply was lost the entries that are
// still ours are given again, with the idle time anew.
var reserve = redis.NewScript(owns + `
local given, cursor, gone = {}, ARGV[6], {}
local number, consumer, list = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+)\n([^\n]*)\n(.*)$')
if number and number > ARGV[3] then return {given, '', '0-0', gone, '0-0'} end -- it comes after a later one, and has no reader
if number == ARGV[3] then
	for id, deliveries in list:gmatch('(%S+) (%S+)') do
		if owns(KEYS[1], ARGV[1], id, consumer, deliveries) and
			#redis.call('XCLAIM', KEYS[1], ARGV[1], consumer, 0, id, 'RETRYCOUNT', deliveries, 'JUSTID') > 0 then
			given[#given + 1] = {id, redis.call('XRANGE', KEYS[1], id, id)[1][2], tonumber(deliveries)}
		end
	end
	return {given, consumer, '0-0', gone, '0-0'}
end

local memory, wanted = {}, tonumber(ARGV[4])
local function give(entry, deliveries)
	given[#given + 1] = {entry[1], entry[2], deliveries}
	memory[#memory + 1] = entry[1] .. ' ' .. deliveries
end
if cursor ~= '' then
	local r = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[5], cursor, 'COUNT', wanted)
	for _, entry in ipairs(r[2]) do
		give(entry, redis.call('XPENDING', KEYS[1], ARGV[1], entry[1], entry[1], 1)[1][4])
	end
	cursor, gone = r[1], r[3] or gone
end
if #given < wanted then
	local r = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', wanted - #given, 'STREAMS', KEYS[1], '>')
	for _, entry in ipairs(r and r[1] and r[1][2] or {}) do give(entry, 1) end
end
if #given > 0 then
	redis.call('SET', KEYS[2], ARGV[3] .. '\n' .. ARGV[2] .. '\n' .. table.concat(memory, ' '), 'PX', ARGV[7])
	return {given, ARGV[2], cursor, gone, '0-0'}
end
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
return {given, ARGV[2], cursor, gone, newest and newest[1] or '0-0'}
`)

// ack ends a delivery. It answers 0, and does nothing, if the delivery is not ours.
//
//	KEYS[1] stream
//	ARGV[1] group   ARGV[2] id   ARGV[3] consumer   ARGV[4] deliveries
//	ARGV[5] 1: take the entry off the stream too
var ack = redis.NewScript(owns + `
if not owns(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 0 end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
if ARGV[5] == '1' then redis.call('XDEL', KEYS[1], ARGV[2]) end
return 1
`)

// renew makes the idle time of a delivery start anew. It answers 0 if the
// delivery is not ours, and -1 if its entry is no longer in the stream. The
// counter is named since miniredis raises it in spite of JUSTID.
//
//	KEYS[1] stream
//	ARGV[1] group   ARGV[2] id   ARGV[3] consumer   ARGV[4] deliveries
var renew = redis.NewScript(owns + `
if not owns(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 0 end
if #redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, ARGV[2], 'RETRYCOUNT', ARGV[4], 'JUSTID') == 0 then return -1 end
return 1
`)

// putBack leaves a delivery pending with an idle time at which the next claim
// takes it, and with the given delivery counter. It answers as renew does.
//
//	KEYS[1] stream
//	ARGV[1] group   ARGV[2] id   ARGV[3] consumer   ARGV[4] deliveries
//	ARGV[5] idle time, ms   ARGV[6] delivery counter from now on
var putBack = redis.NewScript(owns + `
if not owns(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 0 end
if #redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, ARGV[2],
	'IDLE', ARGV[5], 'RETRYCOUNT', ARGV[6], 'JUSTID') == 0 then return -1 end
return 1
`)

// delay moves a delivery into the delayed set. It answers as ack does.
//
//	KEYS[1] stream   KEYS[2] delayed set
//	ARGV[1] group    ARGV[2] id   ARGV[3] consumer   ARGV[4] deliveries
//	ARGV[5] due, unix ms   ARGV[6] member
var delay = redis.NewScript(owns + `
if not owns(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then return 0 end
redis.call('ZADD', KEYS[2], 'NX', ARGV[5], ARGV[6])
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
return 1
`)

// promote moves a due member of the delayed set into the stream. Nobody else can
// have moved it then, and it is never in neither. It answers 1 if it has.
//
//	KEYS[1] stream   KEYS[2] delayed set
//	ARGV[1] now, unix ms   ARGV[2] member   ARGV[3] the entry's field message
//	ARGV[4] the entry's field zabor, or empty
var promote = redis.NewScript(`
local due = redis.call('ZSCORE', KEYS[2], ARGV[2])
if not due or tonumber(due) > tonumber(ARGV[1]) then return 0 end
if ARGV[4] == '' then
	redis.call('XADD', KEYS[1], '*', 'message', ARGV[3])
else
	redis.call('XADD', KEYS[1], '*', 'message', ARGV[3], 'zabor', ARGV[4])
end
redis.call('ZREM', KEYS[2], ARGV[2])
return 1
`)

// lease puts a due member off, so that one promoter alone moves it where stream
// and delayed set are on different nodes of a cluster. It answers 1 if it has.
//
//	KEYS[1] delayed set
//	ARGV[1] now, unix ms   ARGV[2] member   ARGV[3] until, unix ms
var lease = redis.NewScript(`
local due = redis.call('ZSCORE', KEYS[1], ARGV[2])
if not due or tonumber(due) > tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], 'XX', ARGV[3], ARGV[2])
return 1
`)

// keepSlot prolongs a consumer's slot; freeSlot gives it up. Both answer 0 if the
// slot is another process' by now.
//
//	KEYS[1] the slot's key
//	ARGV[1] our token   ARGV[2] time to live, ms (keepSlot)
var (
	keepSlot = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
`)
	freeSlot = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
`)
)

// forget removes a consumer from the group unless it has pending entries, which
// would be thrown away with it.
//
//	KEYS[1] stream
//	ARGV[1] group   ARGV[2] consumer
var forget = redis.NewScript(`
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
`)

// isNoGroup reports that stream or group are gone: deleted, flushed or evicted.
func isNoGroup(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "NOGROUP") || strings.Contains(err.Error(), "no longer exists"))
}
