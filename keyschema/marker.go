package keyschema

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

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

// copyName is the name in zabor_meta of the scope that takes from q. It stands in for a
// marker that Redis has lost.
func (q Queue) copyName() string {
	sum := sha256.Sum256([]byte(q.Location))
	return "queue-scope:" + hex.EncodeToString(sum[:16])
}

// owner is the marker of q. If Redis has lost it, it is made of the copy in the table.
// found is false if neither is there: the queue is new.
func (q Queue) owner(ctx context.Context, store *sqlstore.Store) (m marker, found bool, err error) {
	text, err := q.Redis.Get(ctx, q.Key).Bytes()
	switch {
	case err == nil:
		if err := json.Unmarshal(text, &m); err != nil {
			return marker{}, false, &Refusal{fmt.Errorf("queue %s: %s in its Redis is no marker of zabor's: %w", q.Name, q.Key, err), "look at the key; if nobody needs it, delete it"}
		}
		return m, true, nil
	case !errors.Is(err, redis.Nil):
		return marker{}, false, &QueueError{q.Name, err}
	}
	scope, found, err := store.Meta().Get(ctx, q.copyName())
	return marker{Scope: string(scope)}, found, err
}

// mark writes the marker of q and its copy.
func (q Queue) mark(ctx context.Context, store *sqlstore.Store, m marker) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := store.Meta().Set(ctx, q.copyName(), []byte(m.Scope)); err != nil {
		return err
	}
	if err := q.Redis.Set(ctx, q.Key, text, 0).Err(); err != nil {
		return &QueueError{q.Name, err}
	}
	return nil
}
