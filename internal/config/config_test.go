package config

import (
	"testing"
)

// example is the environment of the example.
func exampleEnv() Env {
	set := map[string]string{
		"DB_USERNAME": "shop", "DB_PASSWORD": "p@ss/w:rd", "DB_HOST": "db.example", "DB_DATABASE": "shop",
		"MESSENGER_TRANSPORT_DSN": "redis://localhost:6379/messages/symfony?dbindex=0",
		"STRIPE_SECRET":           "sk", "YOOKASSA_SHOP_ID": "1", "YOOKASSA_SECRET_KEY": "y", "ACQUIRER_TOKEN": "t",
		"ALERT_URL": "slack://x", "OPS_HASH": "h", "FINANCE_HASH": "h",
	}
	return Env{Lookup: func(n string) (string, bool) { v, ok := set[n]; return v, ok }}
}

func TestExample(t *testing.T) {
	c, err := Load("testdata/zabor.example.yaml", exampleEnv())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(string(c.Fence))
	for _, f := range c.Unbuilt() {
		t.Log(f)
	}
}
