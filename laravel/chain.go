package laravel

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"zabor/internal/php"
	"zabor/internal/tenancy"
)

// successor is the next job of a chain, as PHP would dispatch it once the job in
// hand has succeeded.
type successor struct {
	connection string // that it asks for; empty: as the job in hand
	queue      string // likewise
	delay      time.Duration
	class      string
	fields     []field // of the payload, in Laravel's order, without those of the moment
	dated      bool    // the payload has createdAt and delay, as from Laravel 12.11 on
	horizon    bool    // it has Horizon's fields
	tags       []string
}

// field is one member of a JSON object.
type field struct {
	name  string
	value any
}

// closure is the class that carries PHP's source text.
const closure = `Illuminate\Queue\CallQueuedClosure`

// next builds the successor of a chained command, as dispatchNextJobInChain of
// Laravel's trait Queueable does: the rest of the chain moves into it. Why it
// cannot is an error, and then nobody but PHP may run the job in hand.
//
// Laravel copies some properties of the next job into its payload (tries,
// timeout …). Of those that have their class's default PHP leaves out of the
// serialization what it knows of; they are null here, and the next job's worker
// uses its own.
func (p payload) next(command *php.Object, encrypted bool) (*successor, error) {
	if encrypted {
		return nil, fmt.Errorf("it is part of a chain and encrypted, and only PHP can encrypt the next job")
	}
	if v, ok := command.Prop("chainCatchCallbacks"); ok && !isEmpty(v) {
		return nil, fmt.Errorf("its chain has catch callbacks, and only PHP can call them")
	}
	chained, ok := property(command, "chained").(*php.Array)
	if !ok {
		return nil, fmt.Errorf("its chain is no list")
	}
	text, ok := php.Deref(chained.Items[0].Value).(php.String)
	if !ok {
		return nil, fmt.Errorf("the next job of its chain is not serialized")
	}
	v, err := php.Unmarshal([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("the next job of its chain cannot be read: %w", err)
	}
	job, ok := v.(*php.Object)
	if !ok {
		return nil, fmt.Errorf("the next job of its chain is no object")
	}
	s := &successor{class: strings.TrimPrefix(job.Class, `\`)}
	if s.class == closure {
		return nil, fmt.Errorf("the next job of its chain is a closure, and only PHP can dispatch that")
	}

	rest := &php.Array{}
	for i, it := range chained.Items[1:] {
		rest.Items = append(rest.Items, php.Item{Key: php.Int(i), Value: it.Value})
	}
	chain := map[string]string{}
	for _, name := range []string{"connection", "queue"} {
		inherited := property(command, "chain"+strings.ToUpper(name[:1])+name[1:])
		own := property(job, name)
		if isEmpty(own) {
			own = inherited
			set(job, name, own)
		}
		set(job, "chain"+strings.ToUpper(name[:1])+name[1:], inherited)
		if !isEmpty(own) {
			name, text := name, own
			if chain[name], err = str(text); err != nil {
				return nil, fmt.Errorf("the next job of its chain has a %s that is %w", name, err)
			}
			continue
		}
		if !isEmpty(property(command, name)) {
			return nil, fmt.Errorf("the next job of its chain names no %s, and only PHP knows the default; name it on the chain, Bus::chain(…)->on%s(…)", name, strings.ToUpper(name[:1])+name[1:])
		}
	}
	s.connection, s.queue = chain["connection"], chain["queue"]
	set(job, "chained", rest)
	switch delay := property(job, "delay").(type) {
	case php.Null:
	case php.Int:
		s.delay = time.Duration(max(0, delay)) * time.Second
	default:
		return nil, fmt.Errorf("the next job of its chain is delayed to a date, which only PHP reads")
	}
	return s, s.describe(p, job)
}

// describe makes the fields of the payload.
func (s *successor) describe(p payload, job *php.Object) error {
	command, err := php.Marshal(job)
	if err != nil {
		return fmt.Errorf("the next job of its chain cannot be written: %w", err)
	}
	scalar := func(name string, otherwise any) any {
		switch v := property(job, name).(type) {
		case php.Int:
			return int64(v)
		case php.Bool:
			return bool(v)
		case php.Null:
			return otherwise
		default:
			err = fmt.Errorf("the next job of its chain has a property %s that only PHP reads", name)
			return nil
		}
	}
	// Another uuid than this job's, but the same however often this is built.
	uuid := digest([]byte("next of " + p.id()))
	data := []field{{"commandName", s.class}, {"command", string(command)}}
	if envelope, _ := p.fields["data"].(map[string]any); envelope != nil {
		if _, ok := envelope["batchId"]; ok {
			batch, err := str(property(job, "batchId"))
			if data = append(data, field{"batchId", batch}); err != nil || batch == "" {
				data[2].value = nil
			}
		}
	}
	s.fields = []field{
		{"uuid", uuid}, {"displayName", s.class}, {"job", handler},
		{"maxTries", scalar("tries", nil)}, {"maxExceptions", scalar("maxExceptions", nil)},
		{"failOnTimeout", scalar("failOnTimeout", false)}, {"backoff", backoff(property(job, "backoff"))},
		{"timeout", scalar("timeout", nil)}, {"retryUntil", scalar("retryUntil", nil)},
	}
	if p.fields["deleteWhenMissingModels"] != nil { // Laravel 13
		s.fields = append(s.fields, field{"deleteWhenMissingModels", scalar("deleteWhenMissingModels", false)})
	}
	s.fields = append(s.fields, field{"data", data})
	// The context of a dispatch is that of the job that it happens in, and so is its tenant.
	if logged := p.fields[contextMember]; logged != nil {
		s.fields = append(s.fields, field{contextMember, logged})
	}
	for _, name := range slices.Sorted(maps.Keys(p.fields)) {
		if tenancy.Named(name) && !slices.Contains(ownMembers[:], name) {
			s.fields = append(s.fields, field{name, p.fields[name]})
		}
	}
	_, s.dated = p.fields["createdAt"]
	_, s.horizon = p.fields["pushedAt"]
	id := uuid
	if !s.horizon {
		h := sha256.Sum256([]byte(uuid))
		id = hex.EncodeToString(h[:16]) // 32 letters and digits
	}
	s.fields = append(s.fields, field{"id", id}, field{"attempts", 0})
	s.tags = models(job)
	return err
}

// payload is the job's payload if it is dispatched now.
func (s *successor) payload(now time.Time) []byte {
	fields := s.fields
	if s.dated {
		var delay any
		if s.delay > 0 {
			delay = int64(s.delay / time.Second)
		}
		fields = append(fields[:len(fields):len(fields)], field{"createdAt", now.Unix()}, field{"delay", delay})
	}
	if s.horizon {
		fields = append(fields[:len(fields):len(fields)], field{"type", "job"}, field{"tags", s.tags}, field{"silenced", false}, field{"pushedAt", microtime(now)})
	}
	return jsonObject(fields)
}

// jsonObject writes a JSON object whose members stay in their order.
func jsonObject(fields []field) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	write := func(v any) {
		if err := e.Encode(v); err != nil {
			panic(err) // texts, numbers and what came from JSON
		}
		b.Truncate(b.Len() - 1) // the line's end
	}
	b.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		write(f.name)
		b.WriteByte(':')
		if inner, ok := f.value.([]field); ok {
			b.Write(jsonObject(inner))
			continue
		}
		write(f.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// microtime is PHP's text of a time in seconds.
func microtime(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMicro())/1e6, 'g', 14, 64)
}

// property is the property of that bare name; one that is absent is null.
func property(o *php.Object, name string) php.Value {
	if v, ok := o.Prop(name); ok {
		return v
	}
	return php.Null{}
}

// set changes a property, or adds it unless it is empty, as every default of
// Queueable is.
func set(o *php.Object, name string, v php.Value) {
	for i, it := range o.Items {
		key, ok := it.Key.(php.String)
		if bare, known := php.Bare(string(key)); ok && known && bare == name {
			o.Items[i].Value = v
			return
		}
	}
	if !isEmpty(v) {
		o.Items = append(o.Items, php.Item{Key: php.String(name), Value: v})
	}
}

// isEmpty is PHP's null, "" and [].
func isEmpty(v php.Value) bool {
	switch v := v.(type) {
	case php.Null:
		return true
	case php.String:
		return v == ""
	case *php.Array:
		return len(v.Items) == 0
	}
	return false
}

func str(v php.Value) (string, error) {
	switch v := v.(type) {
	case php.String:
		return string(v), nil
	case php.Null:
		return "", nil
	}
	return "", fmt.Errorf("no text")
}

// backoff is the seconds of a property backoff as a payload has them.
func backoff(v php.Value) any {
	switch v := v.(type) {
	case php.Int:
		return strconv.FormatInt(int64(v), 10)
	case php.String:
		return string(v)
	case *php.Array:
		var all []string
		for _, it := range v.Items {
			n, ok := php.Deref(it.Value).(php.Int)
			if !ok {
				return nil
			}
			all = append(all, strconv.FormatInt(int64(n), 10))
		}
		return strings.Join(all, ",")
	}
	return nil
}

// models are Horizon's tags of a job whose class has none of its own: class and
// id of each model that a property holds.
func models(job *php.Object) []string {
	tags := []string{}
	for _, it := range job.Items {
		o, ok := php.Deref(it.Value).(*php.Object)
		if !ok || o.Class != `Illuminate\Contracts\Database\ModelIdentifier` {
			continue
		}
		class, _ := str(property(o, "class"))
		switch id := property(o, "id").(type) {
		case php.Int:
			tags = append(tags, class+":"+strconv.FormatInt(int64(id), 10))
		case php.String:
			tags = append(tags, class+":"+string(id))
		}
	}
	return tags
}
