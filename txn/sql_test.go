package txn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/txn"
)

// database is as much of one as SQL needs: a table with a unique key, whose inserts
// wait for transactions that have inserted the same key, and a ledger.
type database struct {
	mu     sync.Mutex
	rows   map[string]int64 // committed
	paid   int              // by committed local transactions
	claims map[string]*tx   // keys inserted by transactions that run
	fail   error            // of the next commit, which happens all the same
}

type tx struct {
	db   *database
	keys map[string]int64
	paid int
	over chan struct{}
}

var errUnique = errors.New("unique key")

func newDatabase() (*database, *sql.DB) {
	d := &database{rows: map[string]int64{}, claims: map[string]*tx{}}
	return d, sql.OpenDB(connector{d})
}

type connector struct{ d *database }

func (c connector) Connect(context.Context) (driver.Conn, error) { return &conn{d: c.d}, nil }
func (c connector) Driver() driver.Driver                        { return nil }

// conn is a connection, with its transaction.
type conn struct {
	d  *database
	tx *tx
}

func (c *conn) Prepare(q string) (driver.Stmt, error) { return stmt{c, q}, nil }
func (c *conn) Close() error                          { return nil }
func (c *conn) Begin() (driver.Tx, error) {
	c.tx = &tx{db: c.d, keys: map[string]int64{}, over: make(chan struct{})}
	return c, nil
}

func (c *conn) end(commit bool) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	for k, v := range c.tx.keys {
		delete(c.d.claims, k)
		if commit {
			c.d.rows[k] = v
		}
	}
	if commit {
		c.d.paid += c.tx.paid
	}
	close(c.tx.over)
	c.tx = nil
}

func (c *conn) Commit() error {
	c.end(true)
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	err := c.d.fail
	c.d.fail = nil
	return err
}

func (c *conn) Rollback() error { c.end(false); return nil }

type stmt struct {
	c *conn
	q string
}

func (s stmt) Close() error  { return nil }
func (s stmt) NumInput() int { return -1 }

func (s stmt) Exec(args []driver.Value) (driver.Result, error) {
	switch {
	case strings.HasPrefix(s.q, "CREATE TABLE IF NOT EXISTS half_messages "):
		return driver.ResultNoRows, nil
	case s.q == "PAY":
		s.c.tx.paid++
		return driver.ResultNoRows, nil
	case !strings.HasPrefix(s.q, "INSERT INTO half_messages (id, done) VALUES ($1, "):
		return nil, errors.New("syntax: " + s.q)
	}
	id, done := args[0].(string), int64(strings.TrimSuffix(s.q, ")")[len(s.q)-2]-'0')
	d := s.c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.claims[id] != nil {
		over := d.claims[id].over
		d.mu.Unlock()
		<-over
		d.mu.Lock()
	}
	if _, ok := d.rows[id]; ok {
		return nil, errUnique
	}
	if s.c.tx == nil {
		d.rows[id] = done
	} else {
		d.claims[id], s.c.tx.keys[id] = s.c.tx, done
	}
	return driver.ResultNoRows, nil
}

func (s stmt) Query(args []driver.Value) (driver.Rows, error) {
	if s.q != "SELECT done FROM half_messages WHERE id = $1" {
		return nil, errors.New("syntax: " + s.q)
	}
	s.c.d.mu.Lock()
	defer s.c.d.mu.Unlock()
	done, ok := s.c.d.rows[args[0].(string)]
	return &rows{done, ok}, nil
}

type rows struct {
	done int64
	some bool
}

func (r *rows) Columns() []string { return []string{"done"} }
func (r *rows) Close() error      { return nil }
func (r *rows) Next(dest []driver.Value) error {
	if !r.some {
		return io.EOF
	}
	dest[0], r.some = r.done, false
	return nil
}

func pay(ctx context.Context, t *sql.Tx) error {
	_, err := t.ExecContext(ctx, "PAY")
	return err
}

func TestACheckOfTheDatabaseIsCertainWheneverItComes(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name   string
		local  error // of the local transaction
		lost   error // of its commit, which happens all the same
		order  string
		says   txn.Decision // of the local transaction
		checks txn.Decision
		paid   int
	}{
		{name: "committed before", order: "local, check", says: txn.Commit, checks: txn.Commit, paid: 1},
		{name: "rolled back before", local: boom, order: "local, check", says: txn.Rollback, checks: txn.Rollback},
		{name: "the answer to the commit is lost", lost: boom, order: "local, check", says: txn.Unknown, checks: txn.Commit, paid: 1},
		{name: "never ran", order: "check", checks: txn.Rollback},
		{name: "comes after the check", order: "check, local", says: txn.Rollback, checks: txn.Rollback},
		{name: "runs, and commits", order: "check within local", says: txn.Commit, checks: txn.Commit, paid: 1},
		{name: "runs, and rolls back", local: boom, order: "check within local", says: txn.Rollback, checks: txn.Rollback},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, db := newDatabase()
				defer db.Close()
				d.fail = tc.lost
				s := txn.SQL{DB: db}
				require.NoError(t, s.Create(t.Context()))
				check := make(chan txn.Decision, 1)
				local := s.Local(func(ctx context.Context, tx *sql.Tx) error {
					require.NoError(t, pay(ctx, tx))
					if tc.order == "check within local" {
						go func() { check <- s.Check(t.Context(), txn.Half{ID: "x"}) }()
						synctest.Wait()
						require.Empty(t, check, "it waits")
					}
					return tc.local
				})
				var says txn.Decision
				for _, step := range strings.Split(tc.order, ", ") {
					if strings.HasSuffix(step, "local") {
						says = local(t.Context(), "x")
					} else {
						check <- s.Check(t.Context(), txn.Half{ID: "x"})
					}
				}
				require.Equal(t, tc.says, says)
				require.Equal(t, tc.checks, <-check)
				require.Equal(t, tc.checks, s.Check(t.Context(), txn.Half{ID: "x"}), "and again")
				require.Equal(t, tc.paid, d.paid)
			})
		})
	}
}

// TestTheTrap shows what SQL is for: a check that looks for a trace of a local
// transaction that runs finds none.
func TestTheTrapOfAPlainCheck(t *testing.T) {
	_, db := newDatabase()
	defer db.Close()
	plain := func(id string) txn.Decision {
		var done int
		if errors.Is(db.QueryRow("SELECT done FROM half_messages WHERE id = $1", id).Scan(&done), sql.ErrNoRows) {
			return txn.Rollback
		}
		return txn.Commit
	}
	var check txn.Decision
	says := txn.SQL{DB: db}.Local(func(context.Context, *sql.Tx) error { check = plain("x"); return nil })(t.Context(), "x")
	require.Equal(t, txn.Commit, says)
	require.Equal(t, txn.Rollback, check, "paid, and the message is lost")
}

func TestATableNameThatIsNoneIsNotUsed(t *testing.T) {
	d, db := newDatabase()
	defer db.Close()
	s := txn.SQL{DB: db, Table: "x; DROP TABLE y"}
	require.Error(t, s.Create(t.Context()))
	require.Equal(t, txn.Rollback, s.Local(pay)(t.Context(), "x"))
	require.Equal(t, txn.Unknown, s.Check(t.Context(), txn.Half{ID: "x"}))
	require.Zero(t, d.paid)
}
