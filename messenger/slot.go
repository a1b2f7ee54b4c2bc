package messenger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// slotTime is how long a slot outlives its process; it is prolonged at a third.
const slotTime = 30 * time.Second

// consumerPrefix begins the names of zabor's consumers.
const consumerPrefix = "zabor:"

// maxSlots bounds the search for a free slot.
const maxSlots = 1000

// slot is a number that no other live process of this host has for this stream.
// Two processes with one number would do no harm to messages, see owns; they would
// only be one line in XINFO CONSUMERS.
type slot struct {
	client       redis.UniversalClient
	prefix, host string

	mu    sync.Mutex
	name  string // consumer; empty: no slot is held
	key   string
	token string
	kept  time.Time // when it was last prolonged
	stop  func()    // ends prolonging and waits for it
}

// current is the consumer's name, empty if no slot is held.
func (s *slot) current() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name
}

// take is the consumer's name; it takes a slot if none is held any more.
func (s *slot) take(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.name != "" && time.Since(s.kept) < slotTime {
		return s.name, nil
	}
	if s.token == "" {
		s.token = rand.Text()
	}
	for n := range maxSlots {
		key, kept := s.prefix+strconv.Itoa(n), time.Now()
		ok, err := s.client.SetNX(ctx, key, s.token, slotTime).Result()
		if err != nil {
			return "", fmt.Errorf("take a consumer's slot: %w", err)
		}
		if !ok && key == s.key {
			ok, err = s.prolong(ctx, key)
			if err != nil {
				return "", fmt.Errorf("take a consumer's slot: %w", err)
			}
		}
		if ok {
			s.name, s.key, s.kept = consumerPrefix+s.host+":"+strconv.Itoa(n), key, kept
			if s.stop == nil {
				s.start()
			}
			return s.name, nil
		}
	}
	return "", fmt.Errorf("no free consumer slot: all of %s0 to %d are taken", s.prefix, maxSlots-1)
}

func (s *slot) prolong(ctx context.Context, key string) (bool, error) {
	return keepSlot.Run(ctx, s.client, []string{key}, s.token, slotTime.Milliseconds()).Bool()
}

func (s *slot) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		tick := time.NewTicker(slotTime / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.keep(ctx)
			}
		}
	}()
}

// keep prolongs the slot. After an error it is tried again; a slot that was lost
// is given up, and the next take finds another.
func (s *slot) keep(ctx context.Context) {
	s.mu.Lock()
	key := s.key
	s.mu.Unlock()
	before := time.Now()
	ok, err := s.prolong(ctx, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil || key != s.key:
	case ok:
		s.kept = before
	default:
		s.name = ""
	}
}

// free gives the slot up.
func (s *slot) free(ctx context.Context) error {
	s.mu.Lock()
	stop, key := s.stop, s.key
	s.stop, s.name, s.key = nil, "", ""
	s.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	err := freeSlot.Run(ctx, s.client, []string{key}, s.token).Err()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return err
}

// IsConsumer reports whether name is that of a consumer of zabor's, of whatever
// host.
func IsConsumer(name string) bool { return strings.HasPrefix(name, consumerPrefix) }
