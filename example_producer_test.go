package quorumlog_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/quorumlog/quorumlog"
)

// One goroutine sends without waiting; the results come back in order.
func ExampleProducer_SendAsync() {
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	p, err := n.Producer(quorumlog.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for i := range 3 {
		r := quorumlog.Record{Topic: "orders", Key: []byte("42"), Value: fmt.Append(nil, i)}
		p.SendAsync(ctx, r, func(res quorumlog.Result, err error) {
			switch quorumlog.OutcomeOf(err) {
			case quorumlog.Written:
				fmt.Println("written at", res.Offset)
			case quorumlog.NotWritten:
				fmt.Println("send it again:", err)
			case quorumlog.OutcomeUnknown:
				fmt.Println("look for it before sending it again:", err)
			}
		})
	}
	if err := p.Close(ctx); err != nil { // waits for all results
		log.Fatal(err)
	}
	// Output:
	// written at 0
	// written at 1
	// written at 2
}

// A client that had no answer sends its order again, to a service that has been
// restarted meanwhile.
func ExampleDedupe() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	serve := func(ids ...string) {
		n, err := quorumlog.Open(dir, quorumlog.Config{})
		if err != nil {
			log.Fatal(err)
		}
		defer n.Close()
		p, err := n.Producer(quorumlog.ProducerConfig{Name: "orders", Dedupe: quorumlog.Dedupe{Header: "id"}})
		if err != nil {
			log.Fatal(err)
		}
		ctx := context.Background()
		for _, id := range ids {
			r := quorumlog.Record{Topic: "orders", Headers: []quorumlog.Header{{Key: "id", Value: []byte(id)}}}
			res, err := p.Send(ctx, r)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("order %s at %d, sent before: %v\n", id, res.Offset, res.Duplicate)
		}
		if err := p.Close(ctx); err != nil {
			log.Fatal(err)
		}
	}
	serve("a", "b")
	serve("b", "c")
	// Output:
	// order a at 0, sent before: false
	// order b at 1, sent before: false
	// order b at 1, sent before: true
	// order c at 2, sent before: false
}

// Of two producers of one name only the younger writes.
func ExampleNode_Producer_name() {
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	ctx := context.Background()
	send := func(p *quorumlog.Producer) {
		_, err := p.Send(ctx, quorumlog.Record{Topic: "orders", Value: []byte("x")})
		var fenced *quorumlog.FencedError
		fmt.Println("fenced:", errors.As(err, &fenced))
	}
	var holders []*quorumlog.Producer
	for range 2 {
		p, err := n.Producer(quorumlog.ProducerConfig{Name: "importer"})
		if err != nil {
			log.Fatal(err)
		}
		defer p.Close(ctx)
		send(p)
		holders = append(holders, p)
	}
	send(holders[0])
	// Output:
	// fenced: false
	// fenced: false
	// fenced: true
}

// What goes into one partition, how it is compressed, and what happens when the
// buffer is full.
func ExampleNode_Producer_settings() {
	n, err := quorumlog.OpenMemory(quorumlog.Config{Defaults: quorumlog.TopicConfig{Partitions: 4}})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	p, err := n.Producer(quorumlog.ProducerConfig{
		Linger:      5 * time.Millisecond, // gather records for as long, to make larger batches
		BatchBytes:  64 << 10,
		BufferBytes: 64 << 10, // of records without a result
		Codec:       quorumlog.CodecLZ4,
		Codecs:      map[string]quorumlog.Codec{"photos": quorumlog.CodecNone},
		Partitioner: quorumlog.ByFunc(func(r *quorumlog.Record, n int) int { return len(r.Value) % n }),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer p.Close(ctx)
	res, err := p.Send(ctx, quorumlog.Record{Topic: "photos", Value: []byte("seven b")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("partition", res.Partition)

	r := quorumlog.Record{Topic: "photos", Value: make([]byte, 30<<10)}
	p.TrySendAsync(ctx, r, func(res quorumlog.Result, err error) {
		if errors.Is(err, quorumlog.ErrBufferFull) {
			return // SendAsync would have waited
		}
		fmt.Println("partition", res.Partition, err)
	})
	if err := p.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// partition 3
	// partition 0 <nil>
}

// One record that must be on every replica that is in sync.
func ExampleWithAcks() {
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	ctx, r := context.Background(), quorumlog.Record{Value: []byte("paid")}
	res, err := n.Produce(ctx, "orders", r, quorumlog.WithAcks(quorumlog.AckAll))
	fmt.Println(res.Offset, err)

	_, err = n.Produce(ctx, "orders", r, quorumlog.WithAcks(quorumlog.AckNone))
	fmt.Println(errors.Is(err, quorumlog.ErrInvalid)) // Produce promises more
	// Output:
	// 0 <nil>
	// true
}
