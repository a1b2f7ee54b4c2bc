package worker

import (
	"context"
	"database/sql"
	"fmt"
)

// packetFloor is a size that every MySQL and MariaDB server takes as it comes.
const packetFloor = 1 << 20

// CheckPacket refuses a statement with that many bytes of values if db, a MySQL or
// MariaDB server, does not take it. The server itself only closes the connection. If
// the server's limit cannot be read, it is left to the statement.
func CheckPacket(ctx context.Context, db *sql.DB, size int) error {
	const beside = 4096 // the statement's text and the other values
	if size += beside; size < packetFloor {
		return nil
	}
	var most int
	if err := db.QueryRowContext(ctx, "SELECT @@max_allowed_packet").Scan(&most); err != nil || size <= most {
		return nil //nolint:nilerr // the statement tells the error
	}
	return fmt.Errorf("it has %d bytes and max_allowed_packet of the database is %d: nothing was written; SET GLOBAL max_allowed_packet = %d, and the same under [mysqld] in the server's configuration",
		size, most, nextPacket(size))
}

// nextPacket is the least value of max_allowed_packet with room for size: the server
// takes multiples of 1024, and this is a power of two.
func nextPacket(size int) int {
	n := packetFloor
	for n < size {
		n *= 2
	}
	return n
}
