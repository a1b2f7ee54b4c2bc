package messenger

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// defaults are what Symfony 6 and later takes without options.
func defaults(edit func(*Config)) Config {
	c := Config{
		Addrs: []string{"h:6379"}, Stream: "messages", Group: "symfony", Consumer: "consumer",
		AutoSetup: true, DeleteAfterAck: true, DeleteAfterReject: true,
		RedeliverTimeout: time.Hour, ClaimInterval: time.Minute, Serializer: SerializerPHP,
	}
	edit(&c)
	return c
}

func TestParseDSN(t *testing.T) {
	for dsn, edit := range map[string]func(*Config){
		"redis://h":                       func(c *Config) {},
		"redis://h/":                      func(c *Config) {},
		"valkey://h":                      func(c *Config) {},
		"redis://h:6380":                  func(c *Config) { c.Addrs = []string{"h:6380"} },
		"redis://h?port=6380":             func(c *Config) { c.Addrs = []string{"h:6380"} },
		"redis://[::1]:6380":              func(c *Config) { c.Addrs = []string{"[::1]:6380"} },
		"redis://[::1]":                   func(c *Config) { c.Addrs = []string{"[::1]:6379"} },
		"redis://h/1":                     func(c *Config) { c.Stream = "1" }, // not a database
		"redis://h/s/g/c/":                func(c *Config) { c.Stream, c.Group, c.Consumer = "s", "g", "c" },
		"redis://h/s?stream=t&group=g":    func(c *Config) { c.Stream, c.Group = "s", "g" },
		"redis://h?dbindex=7":             func(c *Config) { c.DB = 7 },
		"redis://pw@h":                    func(c *Config) { c.Password = "pw" },
		"redis://:pw@h":                   func(c *Config) { c.Password = "pw" },
		"redis://pw:@h":                   func(c *Config) { c.Password = "pw" },
		"redis://default:pw@h":            func(c *Config) { c.Password = "pw" },
		"redis://u:p%40:w@h":              func(c *Config) { c.Username, c.Password = "u", "p@:w" },
		"redis://:ab/cd+ef==@h:6379":      func(c *Config) { c.Password = "ab/cd+ef==" },
		"redis://u:p@h?auth=q":            func(c *Config) { c.Password = "q" },
		"redis://h?auth[]=u&auth[]=p":     func(c *Config) { c.Username, c.Password = "u", "p" },
		"redis://h?auth%5B0%5D=p":         func(c *Config) { c.Password = "p" },
		"redis://h?auto_setup=0":          func(c *Config) { c.AutoSetup = false },
		"redis://h?delete_after_ack=No":   func(c *Config) { c.DeleteAfterAck = false },
		"redis://h?delete_after_reject=":  func(c *Config) { c.DeleteAfterReject = false },
		"redis://h?stream_max_entries=50": func(c *Config) { c.MaxEntries = 50 },
		"redis://h?redeliver_timeout=90&claim_interval=500": func(c *Config) {
			c.RedeliverTimeout, c.ClaimInterval = 90*time.Second, 500*time.Millisecond
		},
		"redis://h?serializer=0&lazy=1&persistent_id=x": func(c *Config) { c.Serializer = SerializerNone },
		"redis://h?timeout=1.5&read_timeout=2":          func(c *Config) { c.DialTimeout, c.ReadTimeout = 1500*time.Millisecond, 2*time.Second },
		"redis:///run/redis.sock":                       func(c *Config) { c.Addrs = []string{"/run/redis.sock"} },
		"redis:///run/redis.sock?stream=s&dbindex=2": func(c *Config) {
			c.Addrs, c.Stream, c.DB = []string{"/run/redis.sock"}, "s", 2
		},
		"redis://pw@/run/redis.sock": func(c *Config) { c.Addrs, c.Password = []string{"/run/redis.sock"}, "pw" },
		"redis://h1:6379/s?group=a,redis://h2?group=b": func(c *Config) {
			c.Addrs, c.Cluster, c.Stream, c.Group = []string{"h1:6379", "h2:6379"}, true, "s", "b"
		},
		"redis://h?cluster=1": func(c *Config) { c.Cluster = true },
		"redis:?host[h2:26379]&host[h1:26379]&sentinel_master=m": func(c *Config) {
			c.Addrs, c.Sentinel = []string{"h1:26379", "h2:26379"}, "m"
		},
		"redis://h1:26379,redis://h2:26379/s?redis_sentinel=m": func(c *Config) {
			c.Addrs, c.Sentinel, c.Stream = []string{"h1:26379", "h2:26379"}, "m", "s"
		},
		"redis://u:p@h?sentinel=m&auth=q": func(c *Config) {
			c.Sentinel, c.Username, c.Password, c.SentinelPassword = "m", "u", "p", "q"
		},
		"redis:?host[h1:7000]&host[h2:7000]": func(c *Config) { c.Addrs, c.Cluster = []string{"h1:7000", "h2:7000"}, true },
	} {
		got, err := ParseDSN(dsn)
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		if want := defaults(edit); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", dsn, got, want)
		}
	}
}

func TestParseDSNWithTLS(t *testing.T) {
	for dsn, verifies := range map[string]bool{
		"rediss://h": true, "valkeys://h": true, "redis://h?tls=1": true, "rediss://h?ssl[verify_peer]=0": false, "rediss://h?ssl[peer_name]=n": true,
	} {
		c, err := ParseDSN(dsn)
		if err != nil || c.TLS == nil || c.TLS.InsecureSkipVerify == verifies {
			t.Errorf("%s: TLS %+v, %v; want TLS that verifies: %v", dsn, c.TLS, err, verifies)
		}
	}
	if c, err := ParseDSN("rediss://h?tls=0"); err != nil || c.TLS != nil {
		t.Errorf("tls=0: %v, %v, want none", c.TLS, err)
	}
}

func TestParseDSNRefuses(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                                       "must start with redis://",
		"https://h":                              "must start with redis://",
		"redis:/run/redis.sock":                  "must start with redis://",
		"redis://":                               "no host",
		"redis:?dbindex=1":                       "no host",
		"redis://h\n":                            "", // the line break at the end of a file is dropped
		"redis://h/a\nb":                         "control character",
		"redis://h:x":                            "port",
		"redis://h:0":                            "port",
		"redis://h:65536":                        "port",
		"redis://h//g":                           "part 1 is empty",
		"redis://h/s//c":                         "part 2 is empty",
		"redis://h/s/g/c/d":                      "4 parts",
		"redis://h?stream=":                      "option stream is empty",
		"redis://h?streem=x":                     "did you mean stream?",
		"redis://h?db=1":                         "did you mean dbindex?",
		"redis://h?redeliver_timout=1":           "did you mean redeliver_timeout?",
		"redis://h?auto_ack=1":                   "no option auto_ack",
		"redis://h?redeliver_timeout=abc":        "PHP would silently take 0",
		"redis://h?redeliver_timeout=":           "PHP would silently take 0",
		"redis://h?redeliver_timeout=1.5":        "PHP would silently take 0",
		"redis://h?redeliver_timeout=010":        "PHP would silently take 0",
		"redis://h?redeliver_timeout=0":          "must be from 1",
		"redis://h?claim_interval=-1":            "must be from 0",
		"redis://h?dbindex=x":                    "PHP would silently take 0",
		"redis://h?delete_after_ack=ture":        "PHP would silently take false",
		"redis://h?serializer=3":                 "msgpack",
		"redis://h?serializer=5":                 "must be from 0 to 4",
		"redis://h?timeout=soon":                 "number of seconds",
		"redis://h?host=x":                       "host[NAME:PORT]",
		"redis://h?ssl[verify_peer]=0":           "ssl without TLS",
		"rediss://h?ssl[ciphers]=x":              "not supported",
		"rediss://h?ssl[cafile]=/no/such":        "cafile",
		"redis://h?cluster=1&dbindex=1":          "database 0 only",
		"redis://h?cluster=1&sentinel_master=m":  "exclude each other",
		"redis://h?sentinel_master=m&auth=x":     "some releases",
		"redis://h?sentinel=a&sentinel_master=b": "another master",
		"redis:///s.sock,redis://h":              "socket excludes",
		"redis://h%":                             "",
		"redis://a:b%@h":                         "write %25",
		"redis://h?stream=%zz":                   "write %25",
		"redis://h#x":                            "write it as %23",
		"redis://h1,h2":                          "each of them must",
	} {
		_, err := ParseDSN(dsn)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v, want no error", dsn, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q in it", dsn, err, want)
		}
	}
}

const password = "s3cr3tPassw0rd"

// Whatever is wrong with an address, its password is not in the error.
func TestParseDSNHidesThePassword(t *testing.T) {
	for _, dsn := range []string{
		"redis://u:%sPW@h:x", "redis://PW:%zz@h", "redis://u:PW@x@h", "redis://u:PW?@h?x=1", "redis://u:a@PW@h", "redis://u:PW#x@h/s",
		"redis://u:a?PW@h", "redis://u:a#PW@h", "redis://h?auth=PW&dbindex=x", "redis://h?auth=PW&sentinel=m", "redis://u:PW@h?nope=1",
		"redis://h?auth=a@PW", "redis://u:a,PW@h", "redis://u:a PW\n@h", "PW", "rediss:PW@h", "redis://h?auth[]=u&auth[]=PW&tls=maybe",
	} {
		dsn := strings.ReplaceAll(dsn, "PW", password)
		_, err := ParseDSN(dsn)
		if err == nil {
			t.Errorf("%s: no error", dsn)
		} else if strings.Contains(err.Error(), password) {
			t.Errorf("the password is in: %v", err)
		}
	}
}

func TestOptions(t *testing.T) {
	o := parse(t, "redis://u:p@h/s?dbindex=3").Options()
	if o.MaxRetries != -1 || o.DB != 3 || o.Username != "u" || o.Password != "p" || o.IsClusterMode || o.MasterName != "" {
		t.Errorf("options %+v", o)
	}
}

func FuzzParseDSN(f *testing.F) {
	for _, seed := range []string{"redis://u:p@h:1/s/g/c?dbindex=1&x[y]=z", "redis:///a.sock?stream=s", "redis://a,rediss://b", "redis:?host[a:1]&sentinel=m", "redis://h?auth[]=a&auth[]=b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		c, err := ParseDSN(dsn)
		if err != nil {
			return
		}
		if len(c.Addrs) == 0 || c.Stream == "" || c.Group == "" || c.RedeliverTimeout < time.Second || c.ClaimInterval < 0 || c.Cluster && c.Sentinel != "" {
			t.Errorf("%q: %+v", dsn, c)
		}
	})
}
