// Half sends a message exactly if a payment in a SQL database was committed. It shows
// the trap first: a check that looks for the payment while it is still being made finds
// nothing, gives the message up, and the payment is made all the same. With SQL, which
// claims the id of the message under a unique key, the check waits.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite"

	"github.com/quorumlog/quorumlog"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "half")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"a plain check", "a check that claims"} {
		if err := pay(ctx, filepath.Join(dir, name+".db"), name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// pay makes a payment that takes so long that the check comes in the middle of it.
func pay(ctx context.Context, file, name string) error {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer db.Close()
	claims := quorumlog.SQL{DB: db}
	if err := claims.Create(ctx); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE payments (id TEXT PRIMARY KEY)"); err != nil {
		return err
	}

	checked := make(chan struct{}) // the check is under way
	var once sync.Once
	check := func(ctx context.Context, h quorumlog.Half) quorumlog.Decision {
		defer once.Do(func() { close(checked) })
		var id string
		err := db.QueryRowContext(ctx, "SELECT id FROM payments WHERE id = ?", string(h.ID)).Scan(&id)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return quorumlog.HalfRollback // the trap
		case err != nil:
			return quorumlog.HalfUnknown
		}
		return quorumlog.HalfCommit
	}
	if name == "a check that claims" {
		check = func(ctx context.Context, h quorumlog.Half) quorumlog.Decision {
			once.Do(func() { close(checked) })
			return claims.Check(ctx, h)
		}
	}

	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		return err
	}
	defer n.Close()
	orders, err := n.HalfProducer("order-service", check, quorumlog.HalfConfig{
		Schedule: quorumlog.HalfSchedule{First: 100 * time.Millisecond, Every: time.Second},
	})
	if err != nil {
		return err
	}
	defer orders.Close()

	_, err = orders.Send(ctx, quorumlog.Record{Topic: "paid", Value: []byte("order 42")}, func(ctx context.Context, id quorumlog.HalfID) quorumlog.Decision {
		return claims.Local(func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES (?)", string(id)); err != nil {
				return err
			}
			select { // until the check has looked, and a little longer
			case <-checked:
			case <-ctx.Done():
				return ctx.Err()
			}
			<-time.After(200 * time.Millisecond)
			return nil
		})(ctx, id)
	})
	if err != nil {
		return err
	}

	var payments, messages int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM payments").Scan(&payments); err != nil {
		return err
	}
	read, stop := context.WithTimeout(ctx, time.Second) // as long as no message would take
	defer stop()
	for _, err := range n.Read(read, "paid") {
		if err != nil {
			break
		}
		messages++
		stop()
	}
	fmt.Printf("%s: %d payment, %d message\n", name, payments, messages)
	return nil
}
