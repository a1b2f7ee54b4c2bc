package config

import (
	"net/url"
	"strings"
	"time"
)

// File is zabor.yaml as it is written, with defaults and variables put in. Its
// struct tags are the one description of the file: the reader and the JSON
// Schema are made of them.
//
//	yaml     the key; ",seconds" takes a framework's bare seconds too
//	doc      what it means
//	need     it must be there
//	default  what it is when it is not there
//	min, max bounds of a number or a duration, both included
//	enum     the words it may be
type File struct {
	Scope    string  `yaml:"scope" doc:"In every key: another shop or environment on the same table or provider account needs another. At most 64 bytes, together with a step's own scope; no slash."`
	Fence    Address `yaml:"fence" need:"true" doc:"Database of the fence: mysql://, mariadb://, postgres://, postgresql://, pgsql:// or sqlite://"`
	Database Address `yaml:"database" doc:"The application's database, where the fence is elsewhere: for failed and load."`
	Redis    Address `yaml:"redis" doc:"Redis of the Laravel queues: redis://, rediss://, unix://, and the addresses of Sentinel and Cluster."`

	Lanes         int             `yaml:"lanes" default:"8" min:"1" max:"1024" doc:"Calls at the same time."`
	EncryptionKey Secret          `yaml:"encryption_key" doc:"Encrypts the request kept while a row is open, and stored answers: 32 bytes or more; behind commas, keys of before that still open."`
	KeepAnswers   time.Duration   `yaml:"keep_answers" default:"90d" min:"1s" doc:"How long an answer can be given again; then there is only the reference."`
	Journal       string          `yaml:"journal" doc:"Folder where a success is kept while the database is away."`
	HoldAfter     time.Duration   `yaml:"hold_after" default:"30m" min:"1s" doc:"Doubt that nothing has decided for so long is held for a person."`
	PendingFor    time.Duration   `yaml:"pending_for" default:"72h" min:"1s" doc:"A reference without a verdict for so long is held for a person."`
	Attempts      int             `yaml:"attempts" default:"3" min:"1" max:"1000" doc:"Calls of one step before the failure transport; a call that surely sent nothing counts none."`
	Backoff       []time.Duration `yaml:"backoff" default:"10s 1m 5m" min:"1s" doc:"Waits between the attempts; the last one repeats."`
	KeepApart     []KeepApart     `yaml:"keep_apart" doc:"Key prefixes of cache and sessions in the same Redis server, which the queues must not share."`

	Queues    map[string]*Queue           `yaml:"queues" doc:"By name: the Laravel queue's, or the Symfony transport's."`
	Providers map[string]*Provider        `yaml:"providers" doc:"Payment providers, by the name that steps use."`
	Enums     map[Class]map[string]string `yaml:"enums" doc:"What a PHP enum's cases are worth: class, case, value."`
	Steps     map[string]*Step            `yaml:"steps" doc:"By name; the name is part of the key."`
	Bus       *Bus                        `yaml:"bus" doc:"Messages that have no step."`

	Alerts    []Address  `yaml:"alerts" doc:"Where alerts go."`
	Proxy     *Proxy     `yaml:"proxy" doc:"The outbound proxy."`
	Dashboard *Dashboard `yaml:"dashboard" doc:"The dashboard."`
	Metrics   *Metrics   `yaml:"metrics" doc:"Metrics for Prometheus."`
	Traces    *Traces    `yaml:"traces" doc:"Traces for OpenTelemetry; {}: to where OTEL_EXPORTER_OTLP_ENDPOINT says."`
}

// Queue is one queue: of Laravel or of Symfony, never both.
type Queue struct {
	Laravel    *Laravel `yaml:"laravel" doc:"A list of Laravel's Redis queue; the queue's map key is its name."`
	Symfony    *Symfony `yaml:"symfony" doc:"A stream of Symfony Messenger's Redis transport; the queue's map key is the transport's name."`
	Shared     bool     `yaml:"shared" doc:"PHP workers take from it too; what they had and did not finish is held."`
	MissingRow string   `yaml:"missing_row" default:"doubt" enum:"doubt capture" doc:"What becomes of a message that was delivered before and has no row: looked up first, or called."`
	Failed     *Failed  `yaml:"failed" doc:"The failure transport; by default the framework's own table in the fence's database."`
}

// Laravel is what Laravel's configuration says about a queue.
type Laravel struct {
	Connection string        `yaml:"connection" default:"redis" doc:"Name of the queue connection, as in failed_jobs."`
	Prefix     string        `yaml:"prefix" doc:"Prefix of the Redis connection (database.redis.options.prefix)."`
	Horizon    string        `yaml:"horizon" doc:"Horizon's prefix, where it is installed."`
	RetryAfter time.Duration `yaml:"retry_after,seconds" default:"90s" min:"1s" doc:"How long a message that was taken is kept from the next worker."`
	Timezone   string        `yaml:"timezone" default:"UTC" doc:"The application's time zone, for failed_jobs.failed_at."`
	AppKey     Secret        `yaml:"app_key" doc:"Laravel's APP_KEY, for encrypted jobs; then, separated by commas, those of APP_PREVIOUS_KEYS."`
}

// Symfony is what Symfony's configuration says about a transport.
type Symfony struct {
	DSN              Address       `yaml:"dsn" need:"true" doc:"The transport's DSN as the application has it."`
	RedeliverTimeout time.Duration `yaml:"redeliver_timeout,seconds" min:"1s" doc:"Where it is an option of the transport and not in the DSN. Symfony's default is 3600."`
	AppSecret        Secret        `yaml:"app_secret" doc:"Symfony's APP_SECRET, for signed messages; then, separated by commas, previous ones."`
}

// Failed is a failure transport: a table, or for Symfony a stream.
type Failed struct {
	QueueName string  `yaml:"queue_name" doc:"Symfony: queue_name in messenger_messages."`
	Stream    string  `yaml:"stream" doc:"Symfony: the failure transport's stream."`
	Table     string  `yaml:"table" doc:"The table: failed_jobs, or messenger_messages."`
	Database  Address `yaml:"database" doc:"Where the table is in another database."`
}

// Provider is one payment provider.
type Provider struct {
	Profile   string            `yaml:"profile" need:"true" doc:"What zabor knows about the provider: custom, or the name of a built-in profile."`
	Account   string            `yaml:"account" doc:"The account there, as the provider names it."`
	Secret    Secret            `yaml:"secret" doc:"The key to the account, for a built-in profile."`
	BaseURL   Address           `yaml:"base_url" doc:"https://host, and the part of the path that all requests share."`
	Proxy     Address           `yaml:"proxy" doc:"http://[user:password@]host:port of a proxy that takes CONNECT; the environment's is never asked."`
	Headers   map[string]Secret `yaml:"headers" doc:"Sent with every request."`
	Timeout   time.Duration     `yaml:"timeout" default:"30s" min:"1s" max:"1h" doc:"Of one request, from the first byte sent to the last byte read."`
	Key       *IdempotencyKey   `yaml:"key" doc:"The provider's idempotency key."`
	Reference string            `yaml:"reference" doc:"Where an answer holds the provider's own id."`
	Settled   *Answer           `yaml:"settled" doc:"What an answer says when the money moved."`
	Pending   *Answer           `yaml:"pending" doc:"What an answer says when there is no verdict yet."`
	Declined  *Refusal          `yaml:"declined" doc:"What an answer says when it is a definite no."`
	Malformed *Refusal          `yaml:"malformed" doc:"What an answer says when it is a definite no about the request's form: the message is parked, not acked."`
	Rules     []AnswerRule      `yaml:"rules" doc:"Answers that the lists cannot tell apart; read before them, and the first that is met decides."`
	Prepare   *Prepared         `yaml:"prepare" doc:"What the answer to the harmless first request of two has."`
	Echo      *Echo             `yaml:"echo" doc:"Where an answer repeats what the request said; another value there makes it an answer to something else."`
	Amount    *AnswerAmount     `yaml:"amount" doc:"Where an answer holds the amount."`
	Currency  string            `yaml:"currency" doc:"Where an answer holds the currency."`
	Lookup    *Lookup           `yaml:"lookup" doc:"The request that finds out what became of a call."`
	List      *List             `yaml:"list" doc:"The requests that list all that the provider did, for zabor audit --provider-list."`

	HoldAfter  time.Duration `yaml:"hold_after" min:"1s" doc:"Where doubt is nothing unusual for longer than the top-level hold_after; the longer one counts."`
	PendingFor time.Duration `yaml:"pending_for" min:"1s" doc:"Where verdicts take longer than the top-level pending_for, as of direct debits; the longer one counts."`
}

// AnswerRule says what an answer means that meets all of its conditions.
type AnswerRule struct {
	Means     string              `yaml:"means" need:"true" enum:"settled pending declined malformed unbegun transient earlier unclear" doc:"The list that it belongs to; unbegun: something is there that has moved nothing; transient: nothing was done, and it may be tried later; earlier: it is about another request; unclear: it proves nothing."`
	Statuses  []int               `yaml:"statuses" min:"200" max:"599" doc:"One of these HTTP statuses."`
	Header    map[string]string   `yaml:"header" doc:"All of these header fields, as they are written."`
	Values    map[string][]string `yaml:"values" doc:"By JSON pointer: one of these values there."`
	Reference string              `yaml:"reference" doc:"Where an answer of this kind has the provider's id, if elsewhere."`
}

// Prepared is what the answer to a first request of two has.
type Prepared struct {
	Reference string `yaml:"reference" need:"true" doc:"JSON pointer to the id, where it is not at reference."`
}

// Echo is where an answer repeats the request.
type Echo struct {
	Key   string `yaml:"key" doc:"JSON pointer to what the request carried as {{provider_key}}."`
	Order string `yaml:"order" doc:"JSON pointer to what it carried as {{order}}."`
}

// IdempotencyKey is how the key travels, and what the provider does with it.
type IdempotencyKey struct {
	Header  string        `yaml:"header" doc:"The header that carries it; none where a request's template has {{provider_key}}."`
	Field   string        `yaml:"field" doc:"The property of the request's JSON object that carries it, put in where it is missing."`
	UUID    bool          `yaml:"uuid" doc:"The header has it as a UUID."`
	Mark    string        `yaml:"mark" doc:"Header that is true in an answer that is given again."`
	Life    time.Duration `yaml:"life" doc:"How long the provider surely knows a key; 0: nothing is ever sent again."`
	Replays string        `yaml:"replays" default:"none" enum:"all state success none" doc:"What a second request under a key is answered: all: the first answer, refusals too; state: how the first one stands now; success: the first answer if it was a success, else it runs again; none: nothing to rely on."`
}

// Answer says which answers mean one thing.
type Answer struct {
	Pointer string   `yaml:"pointer" need:"true" doc:"JSON pointer to where in the answer, such as /status."`
	Values  []string `yaml:"values" need:"true" doc:"Any of these there, written as in the answer."`
}

// Refusal says which answers are a definite no: by a value, or by the status.
type Refusal struct {
	Pointer  string   `yaml:"pointer" doc:"JSON pointer to where in the answer, such as /status."`
	Values   []string `yaml:"values" doc:"Any of these there, written as in the answer."`
	Statuses []int    `yaml:"statuses" min:"400" max:"499" doc:"Any of these HTTP statuses."`
}

// AnswerAmount is where an answer holds its amount.
type AnswerAmount struct {
	Minor string `yaml:"minor" doc:"In minor units: 1999."`
	Major string `yaml:"major" doc:"As a decimal: 19.99."`
}

// Lookup is the request that finds a call at the provider.
type Lookup struct {
	Method      string        `yaml:"method" default:"GET" enum:"GET" doc:"Only GET is sure not to move money."`
	Path        PathTemplate  `yaml:"path" doc:"Finds a call by what its request carried, behind base_url; sees only what the row has, such as {{provider_key}}."`
	Prepared    PathTemplate  `yaml:"prepared" doc:"Gets the object of a two-step call by {{prepared}}; taken instead of path where there is an id."`
	Reference   PathTemplate  `yaml:"reference" doc:"Gets what has no verdict yet by {{reference}}."`
	Carried     string        `yaml:"carried" doc:"JSON pointer to where a request must carry {{provider_key}} for path to find it; in a form a[b] is /a/b."`
	Paths       []string      `yaml:"paths" doc:"Paths of the requests that path finds; the absence of another means nothing."`
	Items       string        `yaml:"items" doc:"The answer's list of what was found; without it the whole answer is the hit, and 404 is absent."`
	More        string        `yaml:"more" doc:"JSON pointer to what an answer has, other than false, where there are further pages: then nothing is taken for absent."`
	AbsentAfter time.Duration `yaml:"absent_after" need:"true" min:"1s" doc:"How long after the last moment of sending a look-up that finds nothing proves that there is nothing."`
}

// List is how all that the provider did is listed, page by page.
type List struct {
	Path   string   `yaml:"path" need:"true" doc:"Of the first page, behind base_url; {{since}} in it is the time from which on. Without it the newest come first, and are read until they are older."`
	Since  string   `yaml:"since" default:"rfc3339" enum:"rfc3339 unix" doc:"How {{since}} is written."`
	Items  string   `yaml:"items" need:"true" doc:"JSON pointer to the list of entries in a page."`
	As     string   `yaml:"as" doc:"The name under which an answer to a call has what an entry is plainly."`
	Made   string   `yaml:"made" need:"true" doc:"JSON pointer in an entry to when it was made: RFC 3339, or Unix seconds."`
	Alias  string   `yaml:"alias" doc:"JSON pointer in an entry to another id of the same payment."`
	Key    string   `yaml:"key" doc:"JSON pointer in an entry to what its request carried as {{provider_key}}."`
	Orders []string `yaml:"orders" doc:"JSON pointers in an entry to the order's id; the first that is there counts."`
	Paths  []string `yaml:"paths" doc:"Paths of the requests whose payments are listed, of two steps the first; none: of all."`
	Next   *Next    `yaml:"next" need:"true" doc:"How the next page is asked for."`
}

// Next is how the page behind a page is asked for.
type Next struct {
	Link      string `yaml:"link" doc:"JSON pointer to the next page's address, below base_url; without the rest."`
	Parameter string `yaml:"parameter" doc:"Parameter of the query that asks for it: with cursor, with last, or the number of the page."`
	Cursor    string `yaml:"cursor" doc:"JSON pointer in a page to the parameter's value; none there: it is the last page."`
	Last      string `yaml:"last" doc:"JSON pointer in the last entry to the parameter's value."`
	More      string `yaml:"more" doc:"JSON pointer in a page to false where it is the last."`
}

// Step is one step: which messages ask for it, and the request it makes.
type Step struct {
	Step     string            `yaml:"step" doc:"The step's name in the key, where it is not the map key: two shapes of message may share one."`
	Message  Classes           `yaml:"message" need:"true" doc:"Class of the messages, or several."`
	Order    Path              `yaml:"order" need:"true" doc:"Property that holds the order's id."`
	Scope    Path              `yaml:"scope" doc:"Property that is joined to the top-level scope, such as a merchant's id. With a slash before it, it leads beside the message: /tenant_id, /context/tenant_id, /App\\TenantStamp/id."`
	Part     Path              `yaml:"part" doc:"Property that tells one charge of the step from another, such as a refund's id; none: an order has only one."`
	Defaults map[string]Scalar `yaml:"defaults" doc:"Values of the class's properties that Laravel leaves out of a message because they are the default."`
	Load     SQL               `yaml:"load" doc:"One SELECT that gives exactly one row."`
	Amount   *Amount           `yaml:"amount" doc:"Property or column with the amount: in minor units, or {major: …} as a decimal."`
	Currency string            `yaml:"currency" doc:"Property or column with the currency, or its three letters."`
	Provider Template          `yaml:"provider" need:"true" doc:"Name of the provider; may be a template."`
	Prepare  *Request          `yaml:"prepare" doc:"A harmless request before, whose id the request confirms."`
	Request  *Request          `yaml:"request" need:"true" doc:"The request that moves the money."`
	Volatile []string          `yaml:"volatile" doc:"What may differ in two requests that are the same: top-level fields of a body or query, and properties of the message, as .requestedAt."`

	Captured *Hook  `yaml:"captured" doc:"SQL in the transaction of the capture."`
	Pending  *Hook  `yaml:"pending" doc:"SQL in the transaction of a reference without a verdict."`
	Settled  *Hook  `yaml:"settled" doc:"SQL in the transaction of a success."`
	Declined *Hook  `yaml:"declined" doc:"SQL in the transaction of a definite no."`
	Held     *Hook  `yaml:"held" doc:"SQL in the transaction of a hold."`
	Then     string `yaml:"then" doc:"Queue on which the same message goes on once it is settled, declined or pending: of Laravel a queue beside its own, of Symfony a stream in the same Redis database."`
}

// Request is a request to a provider. Its texts are templates.
type Request struct {
	Method string              `yaml:"method" default:"POST" enum:"POST PUT PATCH DELETE GET"`
	Path   PathTemplate        `yaml:"path" need:"true" doc:"Behind the provider's base_url, with its query."`
	Form   map[string]Template `yaml:"form" doc:"Body as a form."`
	JSON   *Tree               `yaml:"json" doc:"Body as JSON; a value that is one template keeps its type."`
}

// Amount is where a step's money is.
type Amount struct {
	Path  Path
	Major bool // a decimal; false: minor units
}

// Hook is a statement that runs with a change of the row's state.
type Hook struct {
	SQL  SQL `yaml:"sql" need:"true" doc:"One INSERT, UPDATE or DELETE."`
	Rows int `yaml:"rows" default:"1" min:"-1" doc:"How many rows it must change; -1: any number."`
}

// Bus says what becomes of messages without a step.
type Bus struct {
	Forward map[Pattern]string `yaml:"forward" doc:"Moved unchanged to the queue named here."`
	Refuse  []Pattern          `yaml:"refuse" doc:"Never on a bus: to the failure transport, with an alert."`
}

// KeepApart is a prefix of keys in Redis.
type KeepApart struct {
	Prefix string `yaml:"prefix" need:"true"`
	DB     int    `yaml:"db" min:"0" doc:"Redis database."`
}

// Proxy is the outbound proxy.
type Proxy struct {
	Listen   string              `yaml:"listen" need:"true" doc:"host:port. Beyond loopback token or tls.client_ca is needed."`
	Observe  bool                `yaml:"observe" doc:"Let everything pass and only count: no fence."`
	Token    Secret              `yaml:"token" doc:"Callers send it as the bearer token, as the password of Basic, or in Zabor-Token; at least 16 bytes."`
	TLS      *ProxyTLS           `yaml:"tls" doc:"Callers speak TLS."`
	Allow    []string            `yaml:"allow" doc:"METHOD /provider/path of all that may be asked for; * is one segment, ** at the end the rest. Without it: every path of every provider."`
	Unfenced []string            `yaml:"unfenced" doc:"METHOD /provider/path of what may be sent without order and step, and so more than once; written as in allow."`
	Volatile map[string][]string `yaml:"volatile" doc:"By provider: top-level fields of a body or query and headers that may differ in two requests that are the same."`
	MaxBody  int                 `yaml:"max_body" default:"65536" min:"1" max:"1048576" doc:"Bytes of the longest body that is taken."`
	KeepBody int                 `yaml:"keep_body" default:"65536" min:"0" max:"1048576" doc:"Bytes of the longest body of an answer that is kept to be given again; of a longer one there is only the reference."`
	Redact   []string            `yaml:"redact" doc:"Properties whose values are not kept, wherever they stand in an answer."`
}

// ProxyTLS is how callers of the proxy speak TLS.
type ProxyTLS struct {
	Cert     string `yaml:"cert" need:"true" doc:"File with the certificate and its chain, in PEM."`
	Key      string `yaml:"key" need:"true" doc:"File with its key, in PEM."`
	ClientCA string `yaml:"client_ca" doc:"File with the authorities, in PEM, one of which must have signed a caller's certificate."`
}

// Metrics is the address at which Prometheus asks.
type Metrics struct {
	Listen string `yaml:"listen" need:"true" doc:"host:port"`
}

// Traces are where spans go, and who is told of them.
type Traces struct {
	Endpoint  Address           `yaml:"endpoint" doc:"OTLP over HTTP: http://HOST:4318. Without it the variable OTEL_EXPORTER_OTLP_ENDPOINT says."`
	Headers   map[string]Secret `yaml:"headers" doc:"Sent with the spans."`
	Providers []string          `yaml:"providers" doc:"Providers whose requests carry the trace, in the header traceparent."`
}

type (
	// Secret is a text that is never printed.
	Secret string
	// Address is a URL or DSN. It prints without its user and query.
	Address string
	// Class is a PHP class name without a leading backslash.
	Class string
	// Pattern is a class name that may end in *, or is *.
	Pattern string
	// Classes are one class or several.
	Classes []Class
	// Path leads to a property of a message: order.id.
	Path string
	// Template is a Go template.
	Template string
	// PathTemplate is a Go template of an escaped path.
	PathTemplate string
	// SQL is one statement.
	SQL string
	// Tree is the body of a JSON request: nil, bool, int64, json.Number,
	// string (a template), []any or map[string]any.
	Tree struct{ Value any }
	// Scalar is nil, bool, int64, json.Number or string.
	Scalar struct{ Value any }
)

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[secret]"
}

// MarshalText keeps a secret out of every encoding.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// GoString keeps it out of %#v.
func (s Secret) GoString() string { return s.String() }

func (a Address) String() string {
	u, err := url.Parse(string(a))
	switch {
	case a == "":
		return ""
	case err != nil || u.Scheme == "" || u.Opaque != "":
		return "[address]"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// MarshalText keeps the password out of every encoding.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// GoString keeps it out of %#v.
func (a Address) GoString() string { return a.String() }

// Scheme is the part of a before the first colon, in lower case; empty: there
// is none.
func (a Address) Scheme() string {
	scheme, _, ok := strings.Cut(string(a), ":")
	if !ok {
		return ""
	}
	return strings.ToLower(scheme)
}
