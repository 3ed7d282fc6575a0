package quorumlog_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/quorumlog/quorumlog"
)

// A topic of records with keys gets more partitions only if the keys may move.
func ExampleNode_AddPartitions() {
	ctx := context.Background()
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	if err := n.CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 2}); err != nil {
		log.Fatal(err)
	}
	if _, err := n.Produce(ctx, "orders", quorumlog.Record{Key: []byte("42"), Value: []byte("paid")}); err != nil {
		log.Fatal(err)
	}

	err = n.AddPartitions(ctx, "orders", 8)
	var refused *quorumlog.RefusedError
	if errors.As(err, &refused) {
		fmt.Println("refused:", refused.What)
	}
	if err := n.AddPartitions(ctx, "orders", 8, quorumlog.MoveKeys()); err != nil {
		log.Fatal(err)
	}
	status, err := n.Status(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(status.Partitions), "partitions")
	// Output:
	// refused: growth of topic "orders" from 2 to 8 partitions
	// 8 partitions
}
