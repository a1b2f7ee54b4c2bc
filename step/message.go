// Package step turns a message into the effect that it asks for: its key, its
// money and the request to the provider, as the configuration says.
package step

import "zabor/internal/php"

// Message is a decoded message, whichever queue it came from.
type Message struct {
	// Class is the class that matters for routing, without a leading
	// backslash.
	Class string
	// Data holds the message's properties by their bare names, whatever their
	// visibility. Values are nil, bool, int64, float64, string, json.Number,
	// []any, map[string]any and Enum; a string may hold any bytes. A PHP list
	// is a []any, every other array and every object a map.
	Data map[string]any
	// Beside is what the application's framework keeps beside the message: of Laravel the
	// members of the payload that are not its own, and the log context as context; of
	// Symfony the application's stamps, the last of each class, by its name. Values are as
	// in Data. Nil: nothing.
	Beside map[string]any
	// DeliveredBefore: somebody may have run this message already.
	DeliveredBefore bool
	// Rewritten: JSON numbers in Data may have been rounded to 14 digits on
	// the way, by the cjson of Laravel's own pop.
	Rewritten bool
	// Traceparent and Tracestate are what the application's tracing has put beside
	// the message, as W3C's Trace Context writes them; empty: nothing. They are no
	// part of what the message asks for.
	Traceparent, Tracestate string
}

// Enum is a PHP enum case. Its backing value is not on the wire.
type Enum = php.Enum
