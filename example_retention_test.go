package quorumlog_test

import (
	"context"
	"fmt"
	"log"

	"github.com/quorumlog/quorumlog"
)

// What a topic need not keep goes by itself; here it is looked at first, and then
// sent away at once.
func ExampleNode_Retain() {
	ctx := context.Background()
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	err = n.CreateTopic(ctx, quorumlog.TopicConfig{
		Name: "orders", Partitions: 1, SegmentBytes: 4 << 10, RetentionBytes: 4 << 10,
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 10 {
		if _, err := n.Produce(ctx, "orders", quorumlog.Record{Value: make([]byte, 1000)}); err != nil {
			log.Fatal(err)
		}
	}

	plans, err := n.PlanRetention(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range plans {
		for _, s := range p.Segments {
			fmt.Printf("partition %d: offsets %d to %d would go by %s\n", p.Partition, s.Start, s.End-1, s.Reason)
		}
	}
	if _, err := n.Retain(ctx, "orders"); err != nil {
		log.Fatal(err)
	}
	for r, err := range n.Read(ctx, "orders", quorumlog.FromStart(), quorumlog.UntilEnd()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("the first record is at offset", r.Offset)
		break
	}
	// Output:
	// partition 0: offsets 0 to 2 would go by bytes
	// partition 0: offsets 3 to 5 would go by bytes
	// the first record is at offset 6
}
