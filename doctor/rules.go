package doctor

// Rules are all rules, in the order of their codes. A code never changes its
// meaning and is never used again.
func Rules() []Rule {
	return []Rule{
		{"ZB100", "a file that is not understood", Note, "", unread},
		{"ZB101", "a setting that the server does not tell", Warning, "", nil},

		{"ZB110", "a job may run as long as it is reserved, or longer", Error, "laravel/horizon#833", reserve},
		{"ZB111", "the call of a provider may outlast the job", Error, "laravel/framework#28689", clientTimeout},
		{"ZB112", "a worker is killed sooner than its call ends", Error, "laravel/horizon#1541", stopGrace},
		{"ZB113", "a message comes back only after weeks", Warning, "", reserveOfWeeks},

		{"ZB120", "attempts without end", Error, "own-pay/OwnPay#172", unlimitedTries},
		{"ZB121", "no failure transport", Error, "laravel/framework#24549", failureTransport},
		{"ZB122", "a charge that is repeated in place", Error, "pincerhq/pincer#171", repeatedInPlace},
		{"ZB123", "a queue that is none", Warning, "woocommerce/woocommerce-gateway-stripe#3725", syncQueue},

		{"ZB130", "the queues are in a database that a cache clear empties", Error, "laravel/horizon#72", clearedDatabase},
		{"ZB131", "keys of the queues and of cache or sessions begin alike", Error, "laravel/laravel#4982", sharedPrefix},
		{"ZB132", "cache and queues share a server that evicts", Error, "fleetyards/fleetyards#4335", nil},
		{"ZB133", "Redis evicts messages when memory is short", Error, "sidekiq/sidekiq#2883", nil},
		{"ZB134", "Redis keeps nothing over a restart", Error, "", nil},
		{"ZB135", "the queue's Redis connection serializes or compresses", Error, "laravel/framework#47578", serializer},
		{"ZB136", "a prefix that every new application has", Note, "laravel/laravel#4982", commonPrefix},

		{"ZB140", "processes share a consumer name", Error, "symfony/symfony#35358", consumerName},
		{"ZB141", "messages are trimmed before they are handled", Error, "symfony/symfony#53406", maxEntries},
		{"ZB142", "handled messages stay for ever", Warning, "symfony/symfony#33715", deleteAfterAck},
		{"ZB143", "two transports read one stream", Error, "symfony/symfony-docs#13548", sharedStream},

		{"ZB150", "a provider is called outside a fence", Error, "laravel/horizon#1541", unfenced},
		{"ZB151", "a lock is the only guard of a charge", Error, "opsmill/infrahub#9450", lockOnly},
		{"ZB152", "an idempotency key that is new at each attempt", Error, "godaddy-wordpress/wc-plugin-framework#492", volatileKey},
		{"ZB153", "a fence by upsert", Error, "AOEpeople/Aoe_AsyncCache#3", upsertFence},
		{"ZB154", "a fence that looks before it inserts", Error, "woocommerce/woocommerce-gateway-stripe#1302", lookFirst},
		{"ZB155", "tenants share the numbers of orders", Note, "", tenantBeside},

		{"ZB160", "a page waits for what is on the bus", Warning, "", pageMessages},
		{"ZB161", "a request waits for a message", Warning, "woocommerce/woocommerce-gateway-stripe#3725", waitedFor},

		{"ZB170", "MySQL may forget a committed row", Error, "", nil},
		{"ZB171", "PostgreSQL may forget a committed row", Error, "", nil},
		{"ZB172", "the database is a replica", Error, "", nil},
		{"ZB173", "a fence's text is compared as people read it", Error, "unkeyed/unkey#4091", nil},
		{"ZB174", "a fence's key is not unique, or too wide", Error, "arnoldasgudas/Hangfire.MySqlStorage#18", nil},
		{"ZB175", "Doctrine would drop zabor's tables", Error, "", schemaFilter},
		{"ZB176", "the fence's tables are not as they must be", Error, "arnoldasgudas/Hangfire.MySqlStorage#18", nil},
	}
}

// rule is the rule of that code.
func rule(code string) Rule {
	for _, r := range Rules() {
		if r.Code == code {
			return r
		}
	}
	panic("no rule " + code)
}
