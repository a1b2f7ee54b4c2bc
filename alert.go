package zabor

// Severity says how soon a person must look.
type Severity string

// The severities.
const (
	Warning  Severity = "warning"  // look today
	Critical Severity = "critical" // look now: money may have moved twice, or moved unseen
)

// Alert is something that a person must know. It is delivered by whoever the
// program gave to [Fence] and [Resolver]; delivering never blocks them for long.
type Alert struct {
	Severity Severity
	Code     string // stable, such as "held" or "two-references"
	Key      Key
	State    State
	Amount   Money
	Provider string
	Text     string // what happened, and what was not done
	Next     string // the command to type next; may be empty
}
