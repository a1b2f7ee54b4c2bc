// Package produce puts messages on queues as Laravel and Symfony applications
// do, where no PHP is at hand: for the demo, the proof and the benchmarks. Tests
// of the wire formats use the real programs.
package produce

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"zabor/internal/php"
)

// Charge is the message of a shop that wants an order charged.
type Charge struct {
	Order int64
	Minor int64 // amount in minor units
}

// The classes of a [Charge], as the configuration's `message` names them.
const (
	LaravelClass = `App\Jobs\ChargeOrder`
	SymfonyClass = `App\Message\ChargeOrder`
)

func (c Charge) object(class string) *php.Object {
	return &php.Object{Class: class, Items: []php.Item{
		{Key: php.String("orderId"), Value: php.Int(c.Order)},
		{Key: php.String("\x00*\x00amountCents"), Value: php.Int(c.Minor)},
	}}
}

// Laravel is the payload of a queued job, as an element of the queue's list.
func Laravel(c Charge) ([]byte, error) {
	command, err := php.Marshal(c.object(LaravelClass))
	if err != nil {
		return nil, err
	}
	id := uuid.NewString()
	return json.Marshal(map[string]any{
		"uuid": id, "id": id, "displayName": LaravelClass,
		"job": `Illuminate\Queue\CallQueuedHandler@call`, "maxTries": nil, "maxExceptions": nil,
		"failOnTimeout": false, "backoff": nil, "timeout": nil, "retryUntil": nil,
		"data":     map[string]any{"commandName": LaravelClass, "command": string(command)},
		"attempts": 0,
	})
}

// SymfonyPHP is the `message` field of a stream entry by Symfony's PhpSerializer
// behind phpredis' default serializer.
func SymfonyPHP(c Charge) ([]byte, error) {
	const envelope = `Symfony\Component\Messenger\Envelope`
	body, err := php.Marshal(&php.Object{Class: envelope, Items: []php.Item{
		{Key: php.String("\x00" + envelope + "\x00stamps"), Value: &php.Array{}},
		{Key: php.String("\x00" + envelope + "\x00message"), Value: c.object(SymfonyClass)},
	}})
	if err != nil {
		return nil, err
	}
	return wrap(slashes.Replace(string(body)), []string{})
}

// slashes is PHP's addslashes.
var slashes = strings.NewReplacer(`'`, `\'`, `"`, `\"`, `\`, `\\`, "\x00", `\0`)

// SymfonyJSON is the `message` field of a stream entry by Symfony's JSON
// serializer behind phpredis' default serializer.
func SymfonyJSON(c Charge) ([]byte, error) {
	body, err := json.Marshal(map[string]int64{"orderId": c.Order, "amountCents": c.Minor})
	if err != nil {
		return nil, err
	}
	return wrap(string(body), map[string]string{"type": SymfonyClass, "Content-Type": "application/json"})
}

func wrap(body string, headers any) ([]byte, error) {
	outer, err := json.Marshal(map[string]any{"body": body, "headers": headers})
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "s:%d:\"%s\";", len(outer), outer), nil
}
