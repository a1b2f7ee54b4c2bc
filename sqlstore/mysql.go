package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"

	"zabor"
)

func mysqlDialect() *dialect {
	return &dialect{
		name:       "mysql",
		now:        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
		none:       "x''",
		insertNew:  "INSERT IGNORE",
		manyValues: true, manyCases: true,
		recent:   " FORCE INDEX (zabor_fences_captured)",
		div:      "DIV",
		greatest: "GREATEST",
		lock:     " FOR UPDATE",
		skip:     " FOR UPDATE SKIP LOCKED",
		after: func(k zabor.Key) (string, []any) {
			// MySQL and MariaDB look up no range for (a, b, c) > (x, y, z).
			scope, order, step := []byte(k.Scope), []byte(k.Order), []byte(k.Step)
			return "(order_id > ? OR (order_id = ? AND (scope > ? OR (scope = ? AND step > ?))))", []any{order, order, scope, scope, step}
		},
		setMeta:  "ON DUPLICATE KEY UPDATE value = VALUES(value)",
		judge:    judgeMySQL,
		mistaken: mistakenMySQL,
		batch:    batchTx,
		check:    checkMySQL,
		goose:    goose.DialectMySQL,
		// DDL is in no transaction here.
		alone:    "SELECT GET_LOCK(CONCAT('zabor_migrate_', MD5(DATABASE())), 60)",
		together: "DO RELEASE_LOCK(CONCAT('zabor_migrate_', MD5(DATABASE())))",
		versions: "CREATE TABLE " + versionTable + " (\n  id bigint(20) unsigned NOT NULL AUTO_INCREMENT,\n  version_id bigint NOT NULL,\n" +
			"  is_applied boolean NOT NULL,\n  tstamp datetime NULL default CURRENT_TIMESTAMP,\n  PRIMARY KEY(id)\n);\n",
		yes:         "1",
		secretName:  "'" + metaSecret + "'",
		secretBytes: "RANDOM_BYTES(32)",
	}
}

func judgeMySQL(err error) fault {
	if errors.Is(err, mysql.ErrPktTooLarge) {
		return unfit
	}
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return unknown
	}
	switch e.Number {
	case 1062, 1586: // ER_DUP_ENTRY, ER_DUP_ENTRY_WITH_KEY_NAME
		return duplicate
	case 1290, 1792, 1836: // --read-only, READ ONLY transaction, read-only mode
		return readOnly
	case 1146: // ER_NO_SUCH_TABLE
		return missing
	case 1044, 1045, 1049, 1142, 1143, // access denied, no such database
		1054, 1064, 1136, // another table than this program's
		1048, 1364, 3819, 4025: // a column that is not of this program; a CHECK
		return refused
	case 1264, 1265, 1292, 1366, 1406, // the value
		1153: // the packet
		return unfit
	case 1105: // ER_UNKNOWN_ERROR: of a long value that came in pieces, the text alone names the limit
		if strings.Contains(e.Message, "max_allowed_packet") {
			return unfit
		}
	}
	// Deadlock (1213), lock wait (1205), «prepare again» (1615), a cluster node
	// that is not ready (1047) and whatever else.
	return unknown
}

// mistakenMySQL is an error when the statement before took a text for the number
// that it begins with: WHERE id = '7abc' hits row 7, in strict mode too.
func mistakenMySQL(ctx context.Context, tx *sql.Tx) error {
	const truncated = 1292 // ER_TRUNCATED_WRONG_VALUE
	rows, err := tx.QueryContext(ctx, "SHOW WARNINGS")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var level, text string
		var code int
		if err := rows.Scan(&level, &code, &text); err != nil {
			return err
		}
		if code == truncated {
			return fmt.Errorf("it compares a text with a number, and the database took one for the other (%s): CAST the column to CHAR", text)
		}
	}
	return rows.Err()
}

func openMySQL(a address) (*oneServer, error) {
	one := &oneServer{identify: identifyMySQL}
	cfg := mysql.NewConfig()
	cfg.DialFunc = one.dial
	cfg.User, cfg.Passwd = a.user, a.password
	cfg.Net, cfg.Addr = "tcp", a.host
	if a.socket != "" {
		cfg.Net, cfg.Addr = "unix", a.socket
	}
	cfg.DBName = a.database
	cfg.TLSConfig = a.tls
	cfg.ClientFoundRows = true // a swap counts the row it hit, also where no value changed
	cfg.Timeout = tryMargin
	cfg.MaxAllowedPacket = 0        // as the server says: it answers a longer packet by closing the connection
	cfg.Logger = &mysql.NopLogger{} // what it logs is in the errors
	if err := cfg.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return nil, fmt.Errorf("fence address: %w", err)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, errors.New("fence address: the MySQL driver does not take it: check tls")
	}
	wait := max(1, int(a.lockWait/time.Second))
	one.Connector = &mysqlConnector{Connector: connector, session: []string{
		"SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO,NO_ZERO_DATE,NO_ZERO_IN_DATE'" +
			", time_zone = '+00:00', autocommit = 1, completion_type = 0" +
			fmt.Sprintf(", innodb_lock_wait_timeout = %d, lock_wait_timeout = %d", wait, wait),
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		// Galera: read, update and insert only after what other nodes have
		// committed has arrived.
		"SET SESSION wsrep_sync_wait = 7",
	}}
	return one, nil
}

// mysqlConnector makes connections whose session is set, whatever the server's
// own settings are.
type mysqlConnector struct {
	driver.Connector
	session []string
}

func (c *mysqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, statement := range c.session {
		_, err := conn.(driver.ExecerContext).ExecContext(ctx, statement, nil)
		var e *mysql.MySQLError
		if errors.As(err, &e) && e.Number == 1193 && strings.Contains(statement, "wsrep") {
			continue // unknown system variable: no cluster
		}
		if err != nil {
			conn.Close()
			return nil, fmt.Errorf("set up the session: %w", err)
		}
	}
	return conn, nil
}

func checkMySQL(ctx context.Context, db *sql.DB, found *problems) error {
	settings, err := pairs(ctx, db, "SHOW GLOBAL VARIABLES WHERE Variable_name IN "+
		"('read_only', 'super_read_only', 'innodb_read_only', 'tx_read_only', 'transaction_read_only', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'binlog_format')")
	if err != nil {
		return err
	}
	checkMySQLSettings(settings, found)
	engines, err := pairs(ctx, db, "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'zabor\\_%'")
	if err != nil {
		return err
	}
	var there []string
	for name := range engines {
		there = append(there, name)
	}
	checkTables(there, found)
	for _, name := range tables() {
		if engine, ok := engines[name]; ok && !strings.EqualFold(engine, "InnoDB") {
			found.add(nil, "ALTER TABLE "+name+" ENGINE=InnoDB", "table %s is kept by %s, which has no transactions", name, engine)
		}
	}
	if _, ok := engines["zabor_fences"]; !ok {
		return nil
	}
	var partitions int
	err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.partitions WHERE table_schema = DATABASE()"+
		" AND table_name = 'zabor_fences' AND partition_name IS NOT NULL").Scan(&partitions)
	if err != nil {
		return err
	}
	if partitions > 0 {
		found.add(nil, "ALTER TABLE zabor_fences REMOVE PARTITIONING", "table zabor_fences is partitioned")
	}
	types, err := pairs(ctx, db, "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = DATABASE()"+
		" AND table_name = 'zabor_fences' AND column_name IN ('scope', 'order_id', 'step')")
	if err != nil {
		return err
	}
	for _, column := range strings.Split(keyColumns, ", ") {
		if types[column] != "varbinary" {
			found.add(nil, "make it VARBINARY as the migration does", "column %s of zabor_fences is %s: its collation takes different keys for one", column, types[column])
		}
	}
	rows, err := db.QueryContext(ctx, "SELECT index_name, column_name, sub_part IS NULL AND nullable <> 'YES' FROM information_schema.statistics"+
		" WHERE table_schema = DATABASE() AND table_name = 'zabor_fences' AND non_unique = 0")
	if err != nil {
		return err
	}
	return scanKeys(rows, found)
}

// checkMySQLSettings demands a server that takes writes and keeps them.
func checkMySQLSettings(settings map[string]string, found *problems) {
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only", "tx_read_only", "transaction_read_only"} {
		if v, ok := settings[name]; ok && v != "OFF" && v != "0" {
			found.add(ErrReadOnly, "give the address of the primary", "the server is read-only (%s=%s)", name, v)
			break
		}
	}
	if v := settings["innodb_flush_log_at_trx_commit"]; v != "1" {
		found.add(nil, "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the server's configuration",
			"the server may lose what it has committed (innodb_flush_log_at_trx_commit=%s), and a lost row is a second charge", v)
	}
	if settings["log_bin"] == "ON" && settings["binlog_format"] == "STATEMENT" {
		found.add(nil, "SET GLOBAL binlog_format = ROW (or MIXED), and in the server's configuration",
			"the server logs statements (log_bin=ON, binlog_format=STATEMENT), and refuses every write of a session that is READ COMMITTED, as zabor's are")
	}
	if v := settings["sync_binlog"]; v != "1" && settings["log_bin"] == "ON" {
		found.add(nil, "SET GLOBAL sync_binlog = 1, and in the server's configuration",
			"the server may lose what it has committed (log_bin=ON, sync_binlog=%s), and a lost row is a second charge", v)
	}
}

// pairs reads two text columns into a map.
func pairs(ctx context.Context, db *sql.DB, query string) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := map[string]string{}
	for rows.Next() {
		var name string
		var value sql.NullString
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		values[name] = value.String
	}
	return values, rows.Err()
}

// scanKeys reads (index, column, whole and not null) of the unique indexes.
func scanKeys(rows *sql.Rows, found *problems) error {
	defer rows.Close()
	keys := uniqueKeys{}
	for rows.Next() {
		var index, column string
		var whole bool
		if err := rows.Scan(&index, &column, &whole); err != nil {
			return err
		}
		if !whole {
			column = "part of " + column
		}
		keys[index] = append(keys[index], column)
	}
	checkKey(keys, found)
	return rows.Err()
}

// limitPool bounds the connections. They live a minute: after a failover no
// connection stays with the old primary for longer.
func limitPool(db *sql.DB) {
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	db.SetConnMaxLifetime(time.Minute)
}

// mendMySQL makes an earlier migration's remains fit for the next one, and refuses a
// server that would refuse its writes: DDL is in no transaction here.
func mendMySQL(ctx context.Context, db *sql.DB) error {
	settings, err := pairs(ctx, db, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format')")
	if err != nil {
		return err
	}
	if settings["binlog_format"] == "STATEMENT" {
		var found problems
		checkMySQLSettings(map[string]string{"log_bin": settings["log_bin"], "binlog_format": "STATEMENT", "innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1"}, &found)
		if len(found) > 0 {
			return errors.Join(found...)
		}
	}
	var rows int
	err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+versionTable).Scan(&rows)
	switch {
	case judgeMySQL(err) == missing:
		return nil
	case err != nil || rows > 0:
		return err
	}
	_, err = db.ExecContext(ctx, "DROP TABLE "+versionTable) // made, and its first row refused
	return err
}
