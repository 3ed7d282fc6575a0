package quorumlog_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/quorumlog/quorumlog"
)

// three opens three nodes in one process, with a topic of two partitions.
func three(ctx context.Context, nw *quorumlog.Network) (nodes map[string]*quorumlog.Node, peers map[string]string) {
	peers = map[string]string{"a": "", "b": "", "c": ""}
	nodes = map[string]*quorumlog.Node{}
	for id := range peers {
		n, err := quorumlog.OpenMemory(quorumlog.Config{ID: id, Network: nw, Peers: peers})
		if err != nil {
			log.Fatal(err)
		}
		nodes[id] = n
	}
	if err := nodes["a"].CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 2}); err != nil {
		log.Fatal(err)
	}
	return nodes, peers
}

// A fourth node joins, and a plan says what should move to it.
func ExampleNode_PlanBalance() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	nw := quorumlog.NewNetwork()
	nodes, peers := three(ctx, nw)
	d, err := quorumlog.OpenMemory(quorumlog.Config{ID: "d", Network: nw, Peers: peers, Join: true})
	if err != nil {
		log.Fatal(err)
	}
	nodes["d"] = d
	for _, n := range nodes {
		defer n.Close()
	}
	if err := nodes["a"].AddNode(ctx, "d"); err != nil { // returns when it has joined
		log.Fatal(err)
	}
	plan, err := nodes["a"].PlanBalance(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, move := range plan.Moves {
		fmt.Println(move.Reason)
	}
	if err := nodes["a"].Apply(ctx, plan, nil); err != nil {
		log.Fatal(err)
	}
	for _, info := range nodes["a"].Nodes() {
		fmt.Println(info.ID, info.State, info.Replicas)
	}
	// Output:
	// node "c" holds 2 replicas, node "d" holds 0
	// a active 2
	// b active 2
	// c active 1
	// d active 1
}

// A node goes: first what lies on it, then the node itself.
func ExampleNode_DrainNode() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	nw := quorumlog.NewNetwork()
	nodes, peers := three(ctx, nw)
	d, err := quorumlog.OpenMemory(quorumlog.Config{ID: "d", Network: nw, Peers: peers, Join: true})
	if err != nil {
		log.Fatal(err)
	}
	nodes["d"] = d
	for _, n := range nodes {
		defer n.Close()
	}
	if err := d.AddNode(ctx, "d"); err != nil {
		log.Fatal(err)
	}
	err = d.DrainNode(ctx, "a", func(p quorumlog.MoveProgress) {
		if p.Done == p.Total {
			fmt.Println("moved", p.Total)
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := d.RemoveNode(ctx, "a"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Nodes()[0])
	// Output:
	// moved 2
	// {a removed 0 0}
}

// A topic that is deleted and made again is another topic.
func ExampleNode_DeleteTopic() {
	ctx := context.Background()
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	for _, value := range []string{"first", "second"} {
		if _, err := n.Produce(ctx, "orders", quorumlog.Record{Value: []byte(value)}); err != nil {
			log.Fatal(err)
		}
		for r, err := range n.Read(ctx, "orders", quorumlog.UntilEnd()) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%d %s\n", r.Offset, r.Value)
		}
		if err := n.DeleteTopic(ctx, "orders"); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 0 first
	// 0 second
}
