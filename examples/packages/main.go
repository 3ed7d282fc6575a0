// Packages sends the log of a real package manager through a cluster of three
// nodes in this process, and counts what comes out.
//
// Each line of the log is one record, keyed by its package. After half of the
// lines the node that leads the most partitions is cut off from the network and
// stopped, while producing goes on; later it comes back. A group of three
// members reads meanwhile and rebuilds the last status of each package; the
// member on the stopped node leaves with it. The last line counts what the
// members read. It must agree with a direct count of the file, or the exit
// status is 1.
//
//	go run ./examples/packages
//	go run ./examples/packages -dir /tmp/packages        # and once more
//	go run ./examples/packages -input /var/log/dpkg.log
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog"
)

//go:embed testdata/dpkg.log
var sample string

func main() {
	dir := flag.String("dir", "", "keep the data here; a second run goes on where the first one ended (default: a temporary directory)")
	input := flag.String("input", "", "the dpkg log to send (default: the one that comes with this example)")
	flag.Parse()
	if err := start(*dir, *input); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

func start(dir, input string) error {
	text := sample
	if input != "" {
		b, err := os.ReadFile(input)
		if err != nil {
			return err
		}
		text = string(b)
	}
	events, err := parseLog(text)
	if err != nil {
		return err
	}
	if dir == "" {
		temp, err := os.MkdirTemp("", "packages")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		dir = temp
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return run(ctx, os.Stdout, dir, events)
}

const (
	topic      = "packages"
	group      = "inventory"
	partitions = 3
)

// run tells the whole story, to out, and fails unless everything adds up.
func run(ctx context.Context, out io.Writer, dir string, events []event) error {
	l, err := play(ctx, teller(out), dir, events)
	if err != nil {
		return err
	}
	got := l.result()
	fmt.Fprintln(out, got)
	return got.check(l)
}

// play sends what the log has not yet, and returns what the group has read.
func play(ctx context.Context, say func(string, ...any), dir string, events []event) (_ *ledger, err error) {
	ns, err := openNodes(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ns.close()) }()
	say("nodes %v are open in %s", nodeIDs, dir)

	err = ns.get(nodeIDs[0]).CreateTopic(ctx, quorumlog.TopicConfig{Name: topic, Partitions: partitions, Replicas: len(nodeIDs)})
	if err != nil && !errors.Is(err, quorumlog.ErrTopicExists) {
		return nil, err
	}
	stored, err := findStored(ctx, ns.get(nodeIDs[0]), events)
	if err != nil {
		return nil, err
	}
	missing := stored.missing(events)
	say("the log holds %d of %d events, %d are to be written", len(stored), len(events), len(missing))

	members, err := join(ctx, ns, say)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, members.close(ctx)) }()
	from, err := members.committed(ctx)
	if err != nil {
		return nil, err
	}
	l := newLedger(events, stored, from)
	say("earlier runs have read and committed %d events, %d are new", len(events)-l.wanted, l.wanted)

	members.start(ctx, l)
	if err := write(ctx, ns, members, missing, say); err != nil {
		return nil, errors.Join(err, members.failure())
	}
	end, err := ns.ends(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.wait(ctx, end, members.failed); err != nil {
		return nil, errors.Join(err, members.failure())
	}
	if err := members.stop(ctx, end); err != nil {
		return nil, err
	}
	say("everything is read and committed")
	return l, nil
}

// teller returns a function that writes one line about what just happened.
func teller(out io.Writer) func(format string, args ...any) {
	var mu sync.Mutex
	start := time.Now()
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "%5.2fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
}
