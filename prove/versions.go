package prove

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"zabor/sqlstore"
)

// redisVersion is what a Redis says that it is; without a number where it does not
// say, or may not be asked.
func redisVersion(ctx context.Context, client redis.UniversalClient) string {
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return "Redis"
	}
	names := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		names[name] = value
	}
	if valkey := names["valkey_version"]; valkey != "" { // which says that it is a Redis besides
		return "Valkey " + valkey
	}
	return strings.TrimSpace("Redis " + names["redis_version"])
}

// databaseVersion is what the database of a store says that it is.
func databaseVersion(ctx context.Context, store *sqlstore.Store) string {
	name, query := "SQLite", "SELECT sqlite_version()"
	switch store.Dialect() {
	case "mysql":
		name, query = "MySQL", "SELECT VERSION()"
	case "postgres":
		name, query = "PostgreSQL", "SHOW server_version"
	}
	var version string
	if err := store.DB().QueryRowContext(ctx, query).Scan(&version); err != nil {
		return name
	}
	if strings.Contains(version, "MariaDB") {
		name = "MariaDB"
	}
	version, _, _ = strings.Cut(version, " ")
	version, _, _ = strings.Cut(version, "-")
	return name + " " + version
}
