package txn

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
)

// SQL ties half messages to local transactions in a database, so that a check is
// certain though the local transaction may still run.
//
// The trap: a check that finds no trace of the local transaction and answers Rollback
// is wrong if that commits a moment later: its effect is there and its message is lost.
// The cure is a table with a unique key. The local transaction inserts the id of the
// message as done; the check inserts it as not done. Whoever is second meets the key:
// the check waits for a local transaction that runs, and then sees its row or not; a
// local transaction that comes after the check fails and is rolled back.
//
// This needs a database that makes the second insert of a key wait for the first
// one's transaction, or fail, as PostgreSQL, MySQL and SQLite do.
type SQL struct {
	DB *sql.DB
	// Table has the columns id, a text of up to 64 bytes and the primary key, and done,
	// an integer. Default "half_messages". [SQL.Create] makes it.
	Table string
	// Placeholder returns the n-th placeholder of a statement, from 1. Default "$1",
	// as PostgreSQL and SQLite have it; MySQL has "?".
	Placeholder func(n int) string
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

func (s SQL) table() (string, error) {
	switch {
	case s.Table == "":
		return "half_messages", nil
	case !tableName.MatchString(s.Table):
		return "", fmt.Errorf("table %q: use letters, digits, '_' and '.'", s.Table)
	}
	return s.Table, nil
}

func (s SQL) arg(n int) string {
	if s.Placeholder == nil {
		return fmt.Sprintf("$%d", n)
	}
	return s.Placeholder(n)
}

// Create makes the table unless it is there.
func (s SQL) Create(ctx context.Context) error {
	table, err := s.table()
	if err != nil {
		return err
	}
	_, err = s.DB.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+table+" (id VARCHAR(64) PRIMARY KEY, done INTEGER NOT NULL)")
	return err
}

// Local makes fn the local transaction of a Send: it runs in a transaction of the
// database that claims the id first. nil commits, an error rolls back. The decision is
// Unknown when the database does not say whether it has committed.
func (s SQL) Local(fn func(ctx context.Context, tx *sql.Tx) error) func(ctx context.Context, id ID) Decision {
	return func(ctx context.Context, id ID) Decision {
		table, err := s.table()
		if err != nil {
			return Rollback
		}
		tx, err := s.DB.BeginTx(ctx, nil)
		if err != nil {
			return Rollback
		}
		defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
		if _, err := tx.ExecContext(ctx, s.insert(table, 1), string(id)); err != nil {
			return Rollback
		}
		if err := fn(ctx, tx); err != nil {
			return Rollback
		}
		if tx.Commit() != nil {
			return Unknown // the check will find out
		}
		return Commit
	}
}

// Check is the check for messages whose Local is s's.
func (s SQL) Check(ctx context.Context, h Half) Decision {
	table, err := s.table()
	if err != nil {
		return Unknown
	}
	// Waits while the local transaction runs. If it never ran, or was rolled back, this
	// row keeps it from committing later. That it is refused means that a row is there;
	// or the database is in trouble, which the next statement tells.
	_, _ = s.DB.ExecContext(ctx, s.insert(table, 0), string(h.ID))
	var done int
	err = s.DB.QueryRowContext(ctx, "SELECT done FROM "+table+" WHERE id = "+s.arg(1), string(h.ID)).Scan(&done)
	switch {
	case err != nil: // no row either: the claim failed for another reason
		return Unknown
	case done == 1:
		return Commit
	}
	return Rollback
}

// insert returns the statement that claims an id.
func (s SQL) insert(table string, done int) string {
	return fmt.Sprintf("INSERT INTO %s (id, done) VALUES (%s, %d)", table, s.arg(1), done)
}
