// Sqlite keeps balances in a SQL database exactly once: the offset of each record
// is stored in the transaction that books it, and the group resumes where the
// database says. Workers die, and one that was replaced and does not know it is
// refused by the database.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/quorumlog/quorumlog"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

const schema = `
CREATE TABLE balances (account TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE offsets (
	topic TEXT NOT NULL, part INTEGER NOT NULL, next INTEGER NOT NULL,
	PRIMARY KEY (topic, part)
);`

// ledger is the database.
type ledger struct{ db *sql.DB }

func openLedger(ctx context.Context, file string) (*ledger, error) {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // SQLite has one writer
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &ledger{db}, nil
}

// errReplaced: somebody else has booked this record; we have lost its partition
// and do not know it yet.
var errReplaced = errors.New("booked by another worker")

// book adds a payment to its account and stores the offset behind it, both or
// neither.
func (l *ledger) book(ctx context.Context, r quorumlog.Record) error {
	var cents int
	if _, err := fmt.Sscan(string(r.Value), &cents); err != nil {
		return err
	}
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	// Only who goes on exactly here may book: this is what fences an old worker.
	res, err := tx.ExecContext(ctx, `
		INSERT INTO offsets VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET next = excluded.next WHERE next < excluded.next`,
		r.Topic, r.Partition, int64(r.Offset)+1)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return errReplaced
	}
	if _, err := tx.ExecContext(ctx, `
		INSERT INTO balances VALUES (?, ?)
		ON CONFLICT DO UPDATE SET cents = cents + excluded.cents`, string(r.Key), cents); err != nil {
		return err
	}
	return tx.Commit()
}

// resumeAt tells the group where to go on.
func (l *ledger) resumeAt(ctx context.Context, tps []quorumlog.TopicPartition) (map[quorumlog.TopicPartition]quorumlog.Offset, error) {
	at := map[quorumlog.TopicPartition]quorumlog.Offset{}
	for _, tp := range tps {
		var next int64
		err := l.db.QueryRowContext(ctx, `SELECT next FROM offsets WHERE topic = ? AND part = ?`, tp.Topic, tp.Partition).Scan(&next)
		switch {
		case errors.Is(err, sql.ErrNoRows): // never booked: at the committed offset, or the start
		case err != nil:
			return nil, err
		default:
			at[tp] = quorumlog.Offset(next)
		}
	}
	return at, nil
}

func (l *ledger) sum(ctx context.Context) (accounts, cents int, err error) {
	err = l.db.QueryRowContext(ctx, `SELECT count(*), sum(cents) FROM balances`).Scan(&accounts, &cents)
	return accounts, cents, err
}

const payments = 300

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "quorumlog-sqlite")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	n, err := quorumlog.Open(filepath.Join(dir, "log"), quorumlog.Config{})
	if err != nil {
		return err
	}
	defer n.Close()
	books, err := openLedger(ctx, filepath.Join(dir, "ledger.db"))
	if err != nil {
		return err
	}
	defer books.db.Close()
	if err := n.CreateTopic(ctx, quorumlog.TopicConfig{Name: "payments", Partitions: 2}); err != nil {
		return err
	}
	if err := pay(ctx, n); err != nil {
		return err
	}

	// Three workers, one after the other, of which two die: right after a booking,
	// before anybody else has heard of it.
	booked := 0
	for _, dies := range []int{77, 130, 0} {
		n, err := work(ctx, n, books, dies)
		if err != nil {
			return err
		}
		fmt.Printf("a worker booked %d and %s\n", n, map[bool]string{true: "died", false: "was done"}[dies > 0])
		booked += n
	}
	// What a worker does that was replaced in the middle of a record.
	for r, err := range n.Read(ctx, "payments", quorumlog.Partition(0), quorumlog.UntilEnd()) {
		if err != nil {
			return err
		}
		fmt.Println("a late booking:", books.book(ctx, r))
		break
	}
	accounts, cents, err := books.sum(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%d payments of 1.00, %d booked, %d accounts hold %d.%02d\n", payments, booked, accounts, cents/100, cents%100)
	return nil
}

// pay writes the payments.
func pay(ctx context.Context, n *quorumlog.Node) error {
	p, err := n.Producer(quorumlog.ProducerConfig{})
	if err != nil {
		return err
	}
	for i := range payments {
		p.SendAsync(ctx, quorumlog.Record{Topic: "payments", Key: fmt.Appendf(nil, "account-%d", i%10), Value: []byte("100")},
			func(_ quorumlog.Result, err error) {
				if err != nil {
					log.Print(err)
				}
			})
	}
	return p.Close(ctx)
}

var errDeath = errors.New("death")

// work books payments until all are, or, if dies is not 0, until so many are. It
// returns how many it has booked.
func work(ctx context.Context, n *quorumlog.Node, books *ledger, dies int) (booked int, err error) {
	g, err := n.Group(ctx, "ledger", []string{"payments"}, quorumlog.GroupConfig{
		Commit:   quorumlog.ByHand, // nothing but the database says where we are
		ResumeAt: books.resumeAt,
	})
	if err != nil {
		return 0, err
	}
	defer g.Close(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the payments did not come"))
	defer cancel()
	err = g.Run(ctx, func(ctx context.Context, r quorumlog.Record) error {
		if err := books.book(ctx, r); err != nil {
			return err
		}
		booked++
		if booked == dies {
			return errDeath
		}
		if _, cents, err := books.sum(ctx); err != nil || cents == payments*100 {
			return errors.Join(err, errDeath)
		}
		return nil
	})
	if errors.Is(err, errDeath) {
		err = nil
	}
	return booked, err
}
