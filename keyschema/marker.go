package keyschema

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"zabor/sqlstore"
	"zabor/step"
)

// Queue is a queue whose marker says which installation takes from it.
type Queue struct {
	Name     string
	Location string // its server, database and key: other queues have others
	Redis    redis.UniversalClient
	Key      string // of the marker
}

// QueueError says that a queue's server did not answer.
type QueueError struct {
	Queue string
	Err   error
}

func (e *QueueError) Error() string { return fmt.Sprintf("queue %s: its marker: %v", e.Queue, e.Err) }
func (e *QueueError) Unwrap() error { return e.Err }

// marker is what lies beside a queue in Redis.
type marker struct {
	Scope string                `json:"scope"`
	Fence string                `json:"fence"` // of fenceID
	Steps map[string]markedStep `json:"steps"`
}

// markedStep is the schema under which messages were taken last.
type markedStep struct {
	Version int    `json:"version"`
	Digest  string `json:"digest"`
}

// digest names a schema.
func digest(k step.KeySchema) string {
	sum := sha256.Sum256([]byte(k.String()))
	return hex.EncodeToString(sum[:8])
}

// fenceID names the fence's database, wherever it is reached: a copy of it is the same
// fence, and one that was made anew is another.
func fenceID(ctx context.Context, store *sqlstore.Store) (string, error) {
	secret, err := store.Setup().Secret(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte("fence\x00"), secret...))
	return hex.EncodeToString(sum[:8]), nil
}

// foreign says that m is not of the fence of that id; nil: it is.
func (q Queue) foreign(m marker, fence string) error {
	if m.Fence == "" || m.Fence == fence {
		return nil
	}
	return &Refusal{
		fmt.Errorf("queue %s belongs to the installation of scope %q, whose fence is in another database: with two fences each message may be charged twice", q.Name, m.Scope),
		fmt.Sprintf("nothing was started; give this installation a queue or a Redis database of its own, or write the other one's database under fence:. If that is gone for good, hold first what its workers have had: \"zabor migrate --give-up %s\", then \"zabor import --queue %s\"", q.Name, q.Name),
	}
}

// copyName is the name in zabor_meta of the scope that takes from q. It stands in for a
// marker that Redis has lost.
func (q Queue) copyName() string {
	sum := sha256.Sum256([]byte(q.Location))
	return "queue-scope:" + hex.EncodeToString(sum[:16])
}

// owner is the marker of q. If Redis has lost it, it is made of the copy in the table.
// found is false if neither is there: the queue is new.
func (q Queue) owner(ctx context.Context, store *sqlstore.Store) (m marker, found bool, err error) {
	text, m, err := q.inRedis(ctx)
	if text != "" || err != nil {
		return m, err == nil, err
	}
	scope, found, err := store.Meta().Get(ctx, q.copyName())
	return marker{Scope: string(scope)}, found, err
}

// inRedis is the marker in Redis and its text; empty: there is none.
func (q Queue) inRedis(ctx context.Context) (text string, m marker, err error) {
	text, err = q.Redis.Get(ctx, q.Key).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", marker{}, nil
	case err != nil:
		return "", marker{}, &QueueError{q.Name, err}
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return text, marker{}, &Refusal{fmt.Errorf("queue %s: %s in its Redis is no marker of zabor's: %w", q.Name, q.Key, err), "look at the key; if nobody needs it, delete it"}
	}
	return text, m, nil
}

// replaceMarker writes a marker if the present one is as expected; empty: there is none.
var replaceMarker = redis.NewScript(`
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
`)

// mark writes the marker of q and its copy. Of two installations that begin at the same
// moment one fails. renamed are the scopes whose marker is replaced.
func (q Queue) mark(ctx context.Context, store *sqlstore.Store, m marker, renamed []string) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	for {
		was, now, err := q.inRedis(ctx)
		if err == nil {
			err = q.foreign(now, m.Fence)
		}
		if err != nil {
			return err
		}
		if was != "" && now.Scope != m.Scope && !slices.Contains(renamed, now.Scope) {
			return &Refusal{fmt.Errorf("queue %s: the installation of scope %q has begun to take from it at this moment", q.Name, now.Scope), "nothing was started; give each installation a queue or a Redis database of its own"}
		}
		done, err := replaceMarker.Run(ctx, q.Redis, []string{q.Key}, was, text).Int()
		if err != nil {
			return &QueueError{q.Name, err}
		}
		if done == 1 {
			return store.Meta().Set(ctx, q.copyName(), []byte(m.Scope))
		}
	}
}

// taken says that another installation takes from q by now; nil: none does, or Redis
// does not answer.
func (q Queue) taken(ctx context.Context, scope, fence string) error {
	text, m, err := q.inRedis(ctx)
	if text == "" || err != nil {
		return nil //nolint:nilerr // without its Redis nothing is taken from it
	}
	if err := q.foreign(m, fence); err != nil {
		return err
	}
	if m.Scope != scope {
		return &Refusal{fmt.Errorf("queue %s was taken over by the installation of scope %q, and this process is of scope %q", q.Name, m.Scope, scope), "stop one of the two"}
	}
	return nil
}
