package connect

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"zabor/worker"
)

// mostLooked is how many messages are looked at to find the first ready one.
const mostLooked = 1000

// OldestReady is since when the first ready message of q waits; zero: there is
// none, or it does not say.
func OldestReady(ctx context.Context, q worker.Queue) (time.Time, error) {
	looked := 0
	for m, err := range q.Look(ctx) {
		if err != nil {
			return time.Time{}, err
		}
		if m.Place == worker.Ready {
			return PutAt(m.Message), nil
		}
		if looked++; looked == mostLooked {
			break
		}
	}
	return time.Time{}, nil
}

// PutAt is when m was put on its queue; zero: it does not say. A stream's entry has
// it in its id. Laravel's payload has it as createdAt (since Laravel 12), Horizon's
// as pushedAt, Sentry's as sentry_publish_time: seconds since 1970.
func PutAt(m *worker.Message) time.Time {
	if ms, seq, ok := strings.Cut(m.ID, "-"); ok && len(ms) == 13 {
		if _, err := strconv.ParseUint(seq, 10, 64); err == nil {
			n, _ := strconv.ParseInt(ms, 10, 64)
			return time.UnixMilli(n)
		}
	}
	var payload map[string]json.RawMessage
	if json.Unmarshal(m.Raw, &payload) != nil {
		return time.Time{}
	}
	for _, name := range []string{"pushedAt", "createdAt", "sentry_publish_time"} {
		if at, err := strconv.ParseFloat(strings.Trim(string(payload[name]), `"`), 64); err == nil && at > 1e9 && at < 1e10 {
			return time.UnixMicro(int64(at * 1e6))
		}
	}
	return time.Time{}
}
