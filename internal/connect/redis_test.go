package connect

import (
	"strings"
	"testing"
)

// What is wrong in an address is said without the address, which has a password.
func TestRedisAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"redis://:s3cret@h:1/0":                                          "",
		"unix:///run/redis.sock?db=1":                                    "",
		"rediss://user:s3cret@h:1?cluster=true&addr=h2:1":                "",
		"redis://h:1/2?master_name=m&addr=h2:1&password=s3cret":          "",
		"redis://:s3cret@h:port/0":                                       "invalid port",
		"redis://:s3cret@h:1?addr=h2:1":                                  "neither cluster=true nor the Sentinels' master_name",
		"redis://:s3cret@h:1/2?cluster=true":                             `database "2": a Redis Cluster has database 0 only`,
		"redis://:s3cret@h:1?cluster=yes":                                "write cluster=true",
		"redis://:s3cret@h:1?cluster=true&master_name=m":                 "exclude each other",
		"redis://:s3cret@h:1?master_name=":                               "write master_name=NAME",
		"redis://:s3cret@h:1?master_name=m&replica_only=true":            "takes messages from the master",
		"redis://:s3cret@h:1/0?unknown=1":                                "unexpected option",
		"redis://:s3cret@h:1?cluster=true&unknown=1":                     "unexpected option",
		"redis://:s3cret@h:1?master_name=m&dial_timeout=s3cret-duration": "invalid",
	} {
		client, err := Redis(address)
		if err == nil {
			client.Close()
		}
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), ":s3cret@")) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}
