// Quickstart opens a node, writes three records and reads them back. With -dir
// the records stay, and a second run finds those of the first.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/quorumlog/quorumlog"
)

func main() {
	dir := flag.String("dir", "", "keep the data here (default: a temporary directory)")
	flag.Parse()
	if err := run(context.Background(), *dir); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string) error {
	if dir == "" {
		temp, err := os.MkdirTemp("", "quickstart")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		dir = temp
	}

	n, err := quorumlog.Open(dir, quorumlog.Config{})
	if err != nil {
		return err
	}
	defer n.Close()

	// The topic is made on first use. Produce returns when the record is on disk.
	for _, state := range []string{"ordered", "paid", "shipped"} {
		r := quorumlog.Record{Key: []byte("42"), Value: []byte(state)}
		if _, err := n.Produce(ctx, "orders", r); err != nil {
			return err
		}
	}
	for r, err := range n.Read(ctx, "orders", quorumlog.FromStart(), quorumlog.UntilEnd()) {
		if err != nil {
			return err
		}
		fmt.Printf("%d %s %s\n", r.Offset, r.Key, r.Value)
	}
	return nil
}
