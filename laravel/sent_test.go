package laravel

import (
	"testing"
	"time"
)

// A job's age counts from its push, and from the end of its delay.
func TestSent(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]time.Time{
		``:                                  {},
		`"createdAt":1795981590,`:           time.Unix(1795981590, 0),
		`"createdAt":1795981590,"delay":7,`: time.Unix(1795981597, 0),
		`"createdAt":1795981590,"delay":null,"pushedAt":"1795981599.5",`: time.Unix(1795981590, 0),
		`"pushedAt":"1795981590.708",`:                                   time.UnixMilli(1795981590708),
		`"createdAt":"nan",`:                                             {},
		`"createdAt":1e300,`:                                             {},
		`"createdAt":-5,`:                                                {},
		`"createdAt":{},`:                                                {},
	} {
		m := Decode([]byte(`{"uuid":"u",`+fields+`"job":"Charge@handle","data":{},"attempts":0}`), nil)
		if m.Err != nil || !m.Sent.Equal(want) {
			t.Errorf("%s: %s, %v; want %s", fields, m.Sent, m.Err, want)
		}
	}
}
