// Package messenger takes the place of Symfony Messenger's worker on its Redis
// transport: one stream with one consumer group, and beside it the sorted set
// STREAM__queue of delayed messages. It reads and writes Symfony's own bytes, so
// PHP may send, and where wanted consume, beside it.
package messenger

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"zabor"
	"zabor/internal/pipe"
	"zabor/worker"
)

// Times of the source's own.
const (
	block     = 250 * time.Millisecond // longest Wait, and how late a delayed message may come
	claimMost = 5 * time.Second        // longest time between two looks for abandoned messages
	callTime  = 10 * time.Second       // of one command that must not be cut off
)

// Most messages that one command claims or promotes.
const batch = 100

// Options are what a [Source] needs to know. They are not changed afterwards.
type Options struct {
	// Name is the transport's name in the application's messenger.yaml. It
	// goes into stamps, so it must be the same.
	Name   string
	Config Config
	// Failed is the transport's failure transport; nil: there is none, and
	// Park is an error.
	Failed Failed
	// Secrets are the application's secret (APP_SECRET) and its previous ones: the
	// signatures of signed messages are checked, and parked ones are signed anew with
	// the first. None: no signature is looked at, and signed messages are parked as
	// they are.
	Secrets []string
	Host    string            // this host's name, part of the consumer's
	Alert   func(zabor.Alert) // nil: nobody is told
}

// Source is one transport. It implements [worker.Source].
//
// Its consumer is named zabor:HOST:SLOT, where SLOT is the lowest number that no
// other live process of the host has for this stream. The slot is held by the
// key STREAM__zabor:consumer:HOST:SLOT, which lapses slotTime after the process
// does; so the name is the same again after a restart, and consumers do not pile up.
// Messages of an earlier life are not taken up by name, since another process
// might hold them, but like everybody's: once they have been idle for the
// redeliver_timeout.
//
// All messages are received by one call at a time. A Wait blocks a connection.
type Source struct {
	name    string
	cfg     Config
	client  redis.UniversalClient
	failed  Failed
	secrets []string
	alert   func(zabor.Alert)
	slot    slot
	pipe    *pipe.Pipe
	memory  string // key of what the last reserve gave

	receiving chan struct{} // its one token is held while receiving; guards what follows
	ready     bool          // stream and group are there
	reserves  int64         // answered ones: the number of the one that follows
	newest    string        // id in the stream at the last reserve; 0-0: look again at once
	cursor    string        // of the look under way
	missed    []string      // by it: entries that are no longer in the stream
	promoted  time.Time
	full      bool  // Redis has no memory for delayed messages, as last told
	stuck     int64 // delayed members that cannot be promoted, as last told

	mu     sync.Mutex
	looked time.Time            // last look for abandoned messages; zero: now
	look   time.Time            // a message put back is due then; zero: none
	held   map[string]*delivery // by entry id: what callers have in hand
}

// delivery is the receipt of a message.
type delivery struct {
	id         string // of the stream entry
	first      string // of the entry in which the message first was; Message.ID
	consumer   string
	deliveries int64
	envelope   *envelope // nil: the entry cannot be read
	parking    bool      // Park was tried: it may be in the failure transport
	fields     []any     // of the entry, names and values; not zabor's own
}

var _ worker.Source = (*Source)(nil)

// NewSource makes the source of a transport; it sends nothing. The client is made
// from Config.Options, so that it does not repeat commands by itself, and is the
// caller's to close, after [Source.Close].
func NewSource(client redis.UniversalClient, o Options) (*Source, error) {
	switch {
	case o.Name == "":
		return nil, errors.New("messenger: a transport needs its name")
	case o.Host == "":
		return nil, errors.New("messenger: a source needs the host's name for its consumer")
	}
	s := &Source{
		name: o.Name, cfg: o.Config, client: client, failed: o.Failed, secrets: o.Secrets, alert: o.Alert,
		slot:      slot{client: client, prefix: o.Config.Stream + "__zabor:consumer:" + o.Host + ":", host: o.Host},
		pipe:      pipe.New(client),
		receiving: make(chan struct{}, 1),
		newest:    "0-0",
		cursor:    "0-0",
		held:      map[string]*delivery{},
	}
	if s.alert == nil {
		s.alert = func(zabor.Alert) {}
	}
	s.memory = o.Config.Stream + "__zabor:reserve:" + rand.Text()
	if o.Config.Cluster && hashed(s.memory) != hashed(o.Config.Stream) {
		s.memory = "{" + o.Config.Stream + "}__zabor:reserve:" + rand.Text()
		if hashed(s.memory) != hashed(o.Config.Stream) {
			return nil, fmt.Errorf("messenger: on a cluster, a stream named %q cannot have other keys beside it: its braces are no hash tag", o.Config.Stream)
		}
	}
	return s, nil
}

// Name is the transport's name.
func (s *Source) Name() string { return s.name }

// Close gives the consumer's slot up. The consumer is removed from the group if it
// has no pending entries. Receive must have returned; a message in hand can still
// be answered.
func (s *Source) Close(ctx context.Context) error {
	name := s.slot.current()
	if name == "" {
		return nil
	}
	err := forget.Run(ctx, s.client, []string{s.cfg.Stream}, s.cfg.Group, name).Err()
	if isNoGroup(err) {
		err = nil
	}
	return errors.Join(err, s.slot.free(ctx))
}

// setup makes the group from the stream's beginning. It never makes a second one:
// PHP refuses a stream with two.
func (s *Source) setup(ctx context.Context) error {
	if s.cfg.AutoSetup {
		err := s.client.XGroupCreateMkStream(ctx, s.cfg.Stream, s.cfg.Group, "0").Err()
		if err != nil && !strings.Contains(err.Error(), "BUSYGROUP") {
			return fmt.Errorf("create group %s of stream %s: %w", s.cfg.Group, s.cfg.Stream, err)
		}
	}
	groups, err := s.groups(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(groups, func(g redis.XInfoGroup) bool { return g.Name == s.cfg.Group }) {
		return fmt.Errorf("stream %s has no group %s, and auto_setup is off: run messenger:setup-transports, or remove auto_setup from the DSN", s.cfg.Stream, s.cfg.Group)
	}
	for _, g := range groups {
		if g.Name != s.cfg.Group && (s.cfg.DeleteAfterAck || s.cfg.DeleteAfterReject) {
			return fmt.Errorf("stream %s has another group, %.60q: a message would be deleted before both groups had it. "+
				"Nothing was received. Remove that group, or set delete_after_ack and delete_after_reject to false", s.cfg.Stream, g.Name)
		}
	}
	return nil
}

var entryID = regexp.MustCompile(`^[0-9]{1,20}-[0-9]{1,20}$`)

// message decodes an entry. One whose signature is not the application's is
// unreadable, as it is for PHP.
func (s *Source) message(id string, fields map[string]string, consumer string, deliveries int64) *worker.Message {
	d := &delivery{id: id, first: id, consumer: consumer, deliveries: deliveries}
	if first := fields["zabor"]; entryID.MatchString(first) {
		d.first = first
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "zabor" {
			d.fields = append(d.fields, name, fields[name])
		}
	}
	m := &worker.Message{ID: d.first, Sent: sent(d.first), Receipt: d}
	m.Raw, d.envelope, m.Err = readEntry(fields)
	if m.Err != nil {
		d.envelope = nil
		m.Err = unreadable(m.Err.Error())
		return m
	}
	s.read(m, d.envelope)
	m.DeliveredBefore = m.DeliveredBefore || deliveries > 1
	if m.DeliveredBefore && errors.Is(m.Err, worker.ErrUnreadable) && d.envelope.bodyJSON != nil {
		m.Raw = s.cfg.Serializer.wrap(d.envelope.delivered().json()) // its bytes alone are kept
	}
	return m
}

// sent is when the entry with this id was added, by the server's clock.
func sent(id string) time.Time {
	text, _, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// read decodes e into m and checks its signature.
func (s *Source) read(m *worker.Message, e *envelope) {
	m.RetryOf = s.retryOf(e)
	m.Message, m.Err = e.decode()
	if len(s.secrets) > 0 && e.header(signHeader) != "" && !e.signedBy(s.secrets) {
		m.Err = fmt.Errorf("%w: it is signed, and not with app_secret: the application's secret is another, or the message was forged (%w)", worker.ErrUnreadable, worker.ErrWrongSecret)
	}
}

func (s *Source) hold(m *worker.Message) {
	d := m.Receipt.(*delivery)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[d.id] = d
}

// deliveryOf is m's delivery, or ErrLost if this process has handed the entry to
// somebody else since.
func (s *Source) deliveryOf(m *worker.Message) (*delivery, error) {
	d, ok := m.Receipt.(*delivery)
	if !ok {
		return nil, fmt.Errorf("transport %s: message %s was not received from here", s.name, m.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.held[d.id]; ok && now != d {
		return nil, worker.ErrLost
	}
	return d, nil
}

// answer runs a script that answers 0 for a delivery that is not ours and -1 for
// an entry that is gone. final: after success d is nobody's.
func (s *Source) answer(ctx context.Context, d *delivery, final bool, script *redis.Script, keys []string, args ...any) error {
	n, err := s.pipe.Run(ctx, script, keys, append([]any{s.cfg.Group, d.id, d.consumer, d.deliveries}, args...)...).Int()
	if isNoGroup(err) {
		n, err = 0, nil // with the group went every delivery
	}
	if err != nil {
		return fmt.Errorf("transport %s, message %s: %w", s.name, d.id, err)
	}
	if n == -1 {
		s.gone([]string{d.id})
	}
	if n == 1 && !final {
		return nil
	}
	s.mu.Lock()
	if s.held[d.id] == d {
		delete(s.held, d.id)
	}
	s.mu.Unlock()
	if n != 1 {
		return worker.ErrLost
	}
	return nil
}

// Ack removes m from the group's pending entries, and with delete_after_ack from
// the stream. An entry that was trimmed meanwhile is acked like any other. One
// that goes on to m.Then is forwarded there, without its sign.
func (s *Source) Ack(ctx context.Context, m *worker.Message) error {
	if m.Then != "" {
		return s.moveTo(ctx, m, m.Then, true)
	}
	return s.ack(ctx, m, s.cfg.DeleteAfterAck)
}

func (s *Source) ack(ctx context.Context, m *worker.Message, deletes bool) error {
	d, err := s.deliveryOf(m)
	if err != nil {
		return err
	}
	return s.answer(ctx, d, true, ack, []string{s.cfg.Stream}, deletes)
}

// Later puts m back as a delayed message with the body and headers it had. Its
// sign is a header, see deliveredHeader.
//
// A message that was delivered before, by the delivery counter, stays pending
// instead and is claimed after delay, at the latest after the redeliver_timeout:
// a new entry would count from 1 again, and that somebody may have run the
// message would be forgotten. So does a message that cannot be read.
func (s *Source) Later(ctx context.Context, m *worker.Message, after time.Duration) error {
	d, err := s.deliveryOf(m)
	if err != nil {
		return err
	}
	after = max(after, 0)
	if d.deliveries > 1 || d.envelope == nil || d.envelope.bodyJSON == nil {
		return s.putBack(ctx, m, d, after)
	}
	e := d.envelope
	if m.MayHaveActed {
		e = e.delivered()
	}
	due := time.Now().Add(after + time.Millisecond - 1).UnixMilli() // rounded up: never early
	member := e.member(uniqidPrefix + d.first + ":" + rand.Text())
	if s.oneSlot() {
		return s.answer(ctx, d, true, delay, []string{s.cfg.Stream, s.queue()}, due, member)
	}
	// On two nodes of a cluster: in both for a moment, rather than in neither.
	if err := s.Renew(ctx, m); err != nil {
		return err
	}
	if err := s.client.ZAddNX(ctx, s.queue(), redis.Z{Score: float64(due), Member: member}).Err(); err != nil {
		return fmt.Errorf("transport %s, message %s: %w", s.name, d.id, err)
	}
	return s.ack(ctx, m, true)
}

// PutBack makes m as if it had never been delivered. A stream has no head, so the
// entry stays where it is, with its id and its delivery counter of before, pending
// but idle for long enough to be claimed at once. The sign of an entry that stays
// is its delivery counter, which is not set below 2: a counter of 1 is that of an
// entry which a worker has for the first time.
func (s *Source) PutBack(ctx context.Context, m *worker.Message) error {
	d, err := s.deliveryOf(m)
	if err != nil {
		return err
	}
	return s.putBack(ctx, m, d, 0)
}

func (s *Source) putBack(ctx context.Context, m *worker.Message, d *delivery, after time.Duration) error {
	idle := max(s.cfg.RedeliverTimeout-after, 0)
	counter := d.deliveries - 1
	if d.parking {
		counter = max(counter, 1) // the next Park looks whether it is parked already
	}
	if m.MayHaveActed {
		counter = max(counter, 2)
	}
	if err := s.answer(ctx, d, true, putBack, []string{s.cfg.Stream}, idle.Milliseconds(), counter); err != nil {
		return err
	}
	s.lookAt(time.Now().Add(after))
	return nil
}

// Renew makes m's reserve start anew.
func (s *Source) Renew(ctx context.Context, m *worker.Message) error {
	d, err := s.deliveryOf(m)
	if err != nil {
		return err
	}
	return s.answer(ctx, d, false, renew, []string{s.cfg.Stream})
}

// Park adds m to the failure transport, with the stamps that Symfony adds there
// and reason as the error, and then acks it as Symfony rejects: in one script where
// the failure transport is a stream of the same connection and slot. Elsewhere a
// death in between leaves m in both, and the next Park of m adds no second copy. A
// message that cannot be read is refused: Symfony's failed:show would delete it.
func (s *Source) Park(ctx context.Context, m *worker.Message, reason string) error {
	d, err := s.deliveryOf(m)
	if err != nil {
		return err
	}
	if s.failed == nil {
		return fmt.Errorf("transport %s, message %s: no failure transport is configured; the message stays pending", s.name, d.id)
	}
	if d.envelope == nil || errors.Is(m.Err, worker.ErrUnreadable) {
		return fmt.Errorf("transport %s, message %s: not parked: Symfony's failure transport would lose it: %w", s.name, d.id, cmp.Or(m.Err, worker.ErrUnreadable))
	}
	if err := s.Renew(ctx, m); err != nil {
		return err
	}
	reason = strings.ToValidUTF8(reason, "\uFFFD")
	e, err := d.envelope.parked(s.name, reason, s.secrets, time.Now())
	if err != nil {
		return fmt.Errorf("transport %s, message %s: not parked: %w", s.name, d.id, err)
	}
	parked := Parked{Body: e.body, Headers: string(e.headersJSON), Origin: s.cfg.Stream + " " + d.first}
	if f := s.besideFailed(s.cfg.Stream); f != nil {
		value, err := f.entry(ctx, parked)
		if err != nil {
			return fmt.Errorf("transport %s, message %s: not parked: %w", s.name, d.id, err)
		}
		return s.answer(ctx, d, true, forward, []string{s.cfg.Stream, f.Config.Stream}, s.cfg.DeleteAfterReject, "message", value)
	}
	// An earlier try may have added it: of this delivery, of another one, or before
	// Later made a new entry of it.
	again := d.parking || d.deliveries > 1 || d.first != d.id
	d.parking = true
	if err := s.failed.Put(ctx, parked, again); err != nil {
		return fmt.Errorf("transport %s, message %s: not parked: %w", s.name, d.id, err)
	}
	return s.ack(ctx, m, s.cfg.DeleteAfterReject)
}

// groups are the groups of the stream; none where there is no stream.
func (s *Source) groups(ctx context.Context) ([]redis.XInfoGroup, error) {
	groups, err := s.client.XInfoGroups(ctx, s.cfg.Stream).Result()
	if err != nil && noStream(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("groups of stream %s: %w", s.cfg.Stream, err)
	}
	return groups, nil
}

// queue is the key of the delayed set.
func (s *Source) queue() string { return s.cfg.Stream + "__queue" }

// oneSlot reports whether a script may use stream and delayed set together.
func (s *Source) oneSlot() bool {
	_, after, open := strings.Cut(s.cfg.Stream, "{")
	tag, _, closed := strings.Cut(after, "}")
	return !s.cfg.Cluster || open && closed && tag != ""
}

// gone tells that pending entries are no longer in the stream.
func (s *Source) gone(ids []string) {
	next := "look the order up at the provider; the application must send the message again if it was not handled"
	if s.cfg.MaxEntries > 0 {
		next += "; stream_max_entries=" + strconv.FormatInt(s.cfg.MaxEntries, 10) + " trims messages that nobody has handled: set it to 0"
	}
	s.alert(zabor.Alert{
		Severity: zabor.Warning,
		Code:     "entry-gone",
		Text: fmt.Sprintf("transport %s: %d pending messages are no longer in stream %s (%s): trimmed or deleted before they were acked. They were not handled here",
			s.name, len(ids), s.cfg.Stream, strings.Join(ids[:min(len(ids), 5)], ", ")),
		Next: next,
	})
}
