package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Process is a program of zabor's that has told that it is alive.
type Process struct {
	ID      [16]byte // random
	Started time.Time
	Seen    time.Time
	ReadAt  time.Time // the database's clock
	Status  []byte    // what it says of itself, at most 1 MiB
}

// keepProcesses is for how long one that is not seen any more is remembered.
const keepProcesses = 24 * time.Hour

// Alive tells that the process is alive, and what it says of itself. It forgets
// those that were not seen for a day.
func (p Processes) Alive(ctx context.Context, id [16]byte, status []byte) error {
	if len(status) > 1<<20 {
		return fmt.Errorf("tell that this process is alive: what it says has %d bytes, at most %d", len(status), 1<<20)
	}
	err := p.s.repeat(ctx, func(ctx context.Context) error {
		n, err := p.s.exec(ctx, p.s.dialect.sql("UPDATE zabor_processes SET seen = {now}, status = ? WHERE id = ?"), notNil(status), id[:])
		if err != nil || n == 1 {
			return err
		}
		if _, err := p.s.exec(ctx, p.s.dialect.sql("DELETE FROM zabor_processes WHERE seen < {now} - ?"), micros(keepProcesses)); err != nil {
			return err
		}
		_, err = p.s.exec(ctx, p.s.dialect.sql("INSERT INTO zabor_processes (id, started, seen, status) VALUES (?, {now}, {now}, ?)"), id[:], notNil(status))
		if p.s.dialect.judge(err) == duplicate {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("tell that this process is alive: %w", err)
	}
	return nil
}

// Gone tells that the process has ended.
func (p Processes) Gone(ctx context.Context, id [16]byte) error {
	err := p.s.repeat(ctx, func(ctx context.Context) error {
		_, err := p.s.exec(ctx, p.s.dialect.sql("DELETE FROM zabor_processes WHERE id = ?"), id[:])
		return err
	})
	if err != nil {
		return fmt.Errorf("tell that this process has ended: %w", err)
	}
	return nil
}

// List lists those that told that they are alive and not that they have
// ended, the one that was started last first; those not seen for a while may have
// been killed.
func (p Processes) List(ctx context.Context) ([]Process, error) {
	var all []Process
	err := p.s.repeat(ctx, func(ctx context.Context) error {
		all = nil
		return p.s.query(ctx, func(rows *sql.Rows) error {
			var p Process
			var id []byte
			var started, seen, now int64
			err := rows.Scan(&id, &started, &seen, &p.Status, &now)
			copy(p.ID[:], id)
			p.Started, p.Seen, p.ReadAt = moment(started), moment(seen), moment(now)
			all = append(all, p)
			return err
		}, p.s.dialect.sql("SELECT id, started, seen, status, {now} FROM zabor_processes ORDER BY started DESC, id"))
	})
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	return all, nil
}
