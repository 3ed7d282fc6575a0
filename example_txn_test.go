package quorumlog_test

import (
	"context"
	"fmt"
	"log"

	"github.com/quorumlog/quorumlog"
)

// A transfer between accounts that lie in different partitions: both records count,
// or none.
func ExampleNode_Txn() {
	ctx := context.Background()
	n, err := quorumlog.OpenMemory(quorumlog.Config{Defaults: quorumlog.TopicConfig{Partitions: 4}})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	bank, err := n.Txn("teller-1", quorumlog.TxnConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer bank.Close(ctx)

	transfer := func(from, to, amount string) error {
		return bank.Do(ctx, func(tx *quorumlog.Tx) error {
			if err := tx.Send(quorumlog.Record{Topic: "moves", Key: []byte(from), Value: []byte("-" + amount)}); err != nil {
				return err
			}
			if to == "" {
				return fmt.Errorf("there is no account to move %s to", amount)
			}
			return tx.Send(quorumlog.Record{Topic: "moves", Key: []byte(to), Value: []byte("+" + amount)})
		})
	}
	fmt.Println(transfer("ann", "bob", "10"))
	fmt.Println(transfer("ann", "", "20"))
	for r, err := range n.Read(ctx, "moves", quorumlog.UntilEnd()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %s\n", r.Key, r.Value)
	}
	// Unordered output:
	// <nil>
	// transaction of "teller-1" aborted: there is no account to move 20 to
	// ann -10
	// bob +10
}

// A record whose fate a local transaction decides: it is stored first, and seen when
// that has committed.
func ExampleNode_HalfProducer() {
	ctx := context.Background()
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	paid := map[quorumlog.HalfID]bool{} // stands for a database; SQL is for a real one
	check := func(_ context.Context, h quorumlog.Half) quorumlog.Decision {
		if paid[h.ID] {
			return quorumlog.HalfCommit
		}
		return quorumlog.HalfUnknown // ask again later
	}
	orders, err := n.HalfProducer("order-service", check, quorumlog.HalfConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer orders.Close()

	for _, amount := range []int{40, 2000} {
		r := quorumlog.Record{Topic: "paid", Value: fmt.Append(nil, amount)}
		decision, err := orders.Send(ctx, r, func(_ context.Context, id quorumlog.HalfID) quorumlog.Decision {
			if amount > 1000 { // more than there is in the account
				return quorumlog.HalfRollback
			}
			paid[id] = true
			return quorumlog.HalfCommit
		})
		fmt.Println(amount, decision, err)
	}
	for r, err := range n.Read(ctx, "paid") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("seen: %s\n", r.Value)
		break
	}
	// Output:
	// 40 commit <nil>
	// 2000 rollback <nil>
	// seen: 40
}
