package messenger

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"zabor/internal/php"
)

// The application's stamps are beside the message, the last of each class; Symfony's own
// are not.
func TestStampsAreBesideTheMessage(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/trace/symfony54_php.json")
	if err != nil {
		t.Fatal(err)
	}
	if m := Decode(raw); m.Beside != nil {
		t.Errorf("without stamps of the application's: %v", m.Beside)
	}
	text, err := unwrap(raw)
	if err != nil {
		t.Fatal(err)
	}
	e, err := readEnvelope(text)
	if err != nil {
		t.Fatal(err)
	}
	d, err := readDocument(e.body)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []php.Int{7, 8} {
		d.stamp(stamp{class: `App\TenantStamp`, properties: []php.Item{{Key: php.String("tenantId"), Value: id}}})
	}
	if e.body, err = d.body(); err != nil {
		t.Fatal(err)
	}
	m, err := e.decode()
	if want := map[string]any{`App\TenantStamp`: map[string]any{"tenantId": int64(8)}}; err != nil || !reflect.DeepEqual(m.Beside, want) {
		t.Errorf("PHP's serializer: %v, %v; want %v", m.Beside, err, want)
	}

	for stamps, want := range map[string]map[string]any{
		`"X-Message-Stamp-App\\TenantStamp":"[{\"tenantId\":7},{\"tenantId\":900719925474099312}]"`:             {`App\TenantStamp`: map[string]any{"tenantId": json.Number("900719925474099312")}},
		`"X-Message-Stamp-App\\TenantStamp":"[]"`:                                                               nil,
		`"X-Message-Stamp-App\\TenantStamp":"{]"`:                                                               nil,
		`"X-Message-Stamp-App\\TenantStamp":"[7]"`:                                                              nil,
		`"X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\BusNameStamp":"[{\"busName\":\"tenant.bus\"}]"`: nil,
	} {
		m := Decode([]byte(`{"body":"{\"orderId\":1}","headers":{"type":"App\\Message\\ChargeOrder",` + stamps + `}}`))
		if m.Err != nil || !reflect.DeepEqual(m.Beside, want) {
			t.Errorf("%s: %v, %v; want %v", stamps, m.Beside, m.Err, want)
		}
	}
}
