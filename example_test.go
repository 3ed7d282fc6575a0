package quorumlog_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/quorumlog/quorumlog"
)

// temp returns a directory for an example and what removes it.
func temp() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "quorumlog")
	if err != nil {
		log.Fatal(err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }
}

// One durable node, without a port.
func Example() {
	dir, remove := temp()
	defer remove()
	ctx := context.Background()

	n, err := quorumlog.Open(dir, quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	if _, err := n.Produce(ctx, "orders", quorumlog.Record{Key: []byte("42"), Value: []byte("paid")}); err != nil {
		log.Fatal(err)
	}
	for r, err := range n.Read(ctx, "orders", quorumlog.FromStart(), quorumlog.UntilEnd()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s\n", r.Offset, r.Value)
	}
	// Output: 0 paid
}

// Everything in memory, for a test.
func ExampleOpenMemory() {
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	res, err := n.Produce(context.Background(), "orders", quorumlog.Record{Value: []byte("created")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Topic, res.Partition, res.Offset)
	// Output: orders 0 0
}

// Three replicas in one process: any node takes and serves every record.
func ExampleOpen_threeNodes() {
	dir, remove := temp()
	defer remove()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	nw := quorumlog.NewNetwork()
	peers := map[string]string{"a": "a", "b": "b", "c": "c"}
	nodes := map[string]*quorumlog.Node{}
	for id := range peers {
		n, err := quorumlog.Open(filepath.Join(dir, id), quorumlog.Config{ID: id, Network: nw, Peers: peers})
		if err != nil {
			log.Fatal(err)
		}
		defer n.Close()
		nodes[id] = n
	}
	err := nodes["a"].CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 3, Replicas: 3})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := nodes["b"].Produce(ctx, "orders", quorumlog.Record{Key: []byte("42"), Value: []byte("any node will do")}); err != nil {
		log.Fatal(err)
	}
	for r, err := range nodes["c"].Read(ctx, "orders", quorumlog.UntilEnd()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", r.Key, r.Value)
	}
	// Output: 42: any node will do
}

// What was sent since a point in time, exactly, also inside a batch.
func ExampleFromTime() {
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	ctx := context.Background()
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for i, v := range []string{"created", "paid", "sent"} {
		at := noon.Add(time.Duration(i) * time.Hour)
		if _, err := n.Produce(ctx, "orders", quorumlog.Record{Time: at, Value: []byte(v)}); err != nil {
			log.Fatal(err)
		}
	}

	since := noon.Add(time.Minute)
	for r, err := range n.Read(ctx, "orders", quorumlog.FromTime(since), quorumlog.UntilEnd()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Partition, r.Offset, r.Time.UTC().Format(time.TimeOnly), string(r.Value))
	}
	// Output:
	// 0 1 13:00:00 paid
	// 0 2 14:00:00 sent
}

// A producer of its own: many records under way, each with its result.
func ExampleNode_Producer() {
	dir, remove := temp()
	defer remove()
	ctx := context.Background()
	n, err := quorumlog.Open(dir, quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()

	p, err := n.Producer(quorumlog.ProducerConfig{Linger: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close(ctx)
	for _, v := range []string{"created", "paid", "sent"} {
		p.SendAsync(ctx, quorumlog.Record{Topic: "orders", Key: []byte("42"), Value: []byte(v)}, func(res quorumlog.Result, err error) {
			fmt.Println(v, res.Offset, err)
		})
	}
	if err := p.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// created 0 <nil>
	// paid 1 <nil>
	// sent 2 <nil>
}

// A group commits what its handler has finished, and goes on there.
func ExampleNode_Group() {
	dir, remove := temp()
	defer remove()
	ctx := context.Background()
	n, err := quorumlog.Open(dir, quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	for _, v := range []string{"created", "paid", "sent"} {
		if _, err := n.Produce(ctx, "orders", quorumlog.Record{Value: []byte(v)}); err != nil {
			log.Fatal(err)
		}
	}

	g, err := n.Group(ctx, "billing", []string{"orders"}, quorumlog.GroupConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close(ctx)
	b, err := g.Poll(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range b.Records {
		fmt.Printf("%d %s\n", r.Offset, r.Value)
	}
	if err := g.Commit(ctx, b); err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// 0 created
	// 1 paid
	// 2 sent
}

func ExampleNode_Watch() {
	ctx := context.Background()
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	if err := n.CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 1}); err != nil {
		log.Fatal(err)
	}
	for s, err := range n.Watch(ctx) { // for as long as ctx lasts
		if err != nil {
			log.Fatal(err)
		}
		if s.Topic == "orders" && s.Leader != "" {
			fmt.Println(s.TopicPartition, "is led by", s.Leader, "and in sync on", len(s.Replicas))
			break
		}
	}
	// Output: orders/0 is led by node and in sync on 1
}

// A handler with a policy for what fails: tried again in place, and given up to
// the dead letters.
func ExampleGroup_Run() {
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, v := range []string{"10", "ten", "12"} {
		if _, err := n.Produce(ctx, "amounts", quorumlog.Record{Value: []byte(v)}); err != nil {
			log.Fatal(err)
		}
	}

	g, err := n.Group(ctx, "sum", []string{"amounts"}, quorumlog.GroupConfig{Retry: quorumlog.RetryPolicy{InPlace: 3}})
	if err != nil {
		log.Fatal(err)
	}
	sum := 0
	err = g.Run(ctx, func(_ context.Context, r quorumlog.Record) error {
		amount, err := strconv.Atoi(string(r.Value))
		if err != nil {
			return quorumlog.Permanent(err) // no use in trying again
		}
		if sum += amount; r.Offset == 2 {
			cancel() // enough for an example
		}
		return nil
	})
	ctx = context.Background()
	fmt.Println(sum, errors.Is(err, context.Canceled), g.Close(ctx))
	for l, err := range n.DeadLetters("sum").List(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s from offset %d: %s\n", l.Value, l.Failure.Offset, l.Failure.Reason)
	}
	// Output:
	// 22 true <nil>
	// ten from offset 1: strconv.Atoi: parsing "ten": invalid syntax
}

// How far a group is behind, and how it is sent back: a look first.
func ExampleNode_ResetGroup() {
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	ctx := context.Background()
	for _, v := range []string{"created", "paid", "sent"} {
		if _, err := n.Produce(ctx, "orders", quorumlog.Record{Value: []byte(v)}); err != nil {
			log.Fatal(err)
		}
	}
	orders := []string{"orders"}
	show := func() {
		lags, err := n.Lags(ctx, "billing")
		if err != nil {
			log.Fatal(err)
		}
		for _, l := range lags {
			fmt.Printf("%v is at %d, %d behind\n", l.TopicPartition, l.Committed, l.Records)
		}
	}

	if _, err := n.ResetGroup(ctx, "billing", orders, quorumlog.ToEnd()); err != nil {
		log.Fatal(err)
	}
	show()
	plan, err := n.PlanReset(ctx, "billing", orders, quorumlog.ToOffset(1))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("would move", plan[0].From, "to", plan[0].To)
	if _, err := n.ResetGroup(ctx, "billing", orders, quorumlog.ToOffset(1)); err != nil {
		log.Fatal(err)
	}
	show()
	// Output:
	// orders/0 is at 3, 0 behind
	// would move 3 to 1
	// orders/0 is at 1, 2 behind
}

// The newest records first.
func ExampleBackwards() {
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	ctx := context.Background()
	for _, v := range []string{"created", "paid", "sent"} {
		if _, err := n.Produce(ctx, "orders", quorumlog.Record{Value: []byte(v)}); err != nil {
			log.Fatal(err)
		}
	}
	for r, err := range n.Read(ctx, "orders", quorumlog.Backwards()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s\n", r.Offset, r.Value)
	}
	// Output:
	// 2 sent
	// 1 paid
	// 0 created
}
