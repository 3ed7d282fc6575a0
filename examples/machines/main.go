// Machines runs a cluster of three processes that talk over TCP, as three machines
// would. This process is node a; it starts b and c, has them lead, and kills one of
// them, without a word to anybody, while it writes.
//
// On machines of your own, run one of these on each:
//
//	machines -id a -listen :7400 -peers a=host-a:7400,b=host-b:7400,c=host-c:7400 -insecure -dir data
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlog/quorumlog"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var cfg quorumlog.Config
	flag.StringVar(&cfg.ID, "id", "", "run this one node, until interrupted")
	child := flag.Bool("child", false, "end when standard input does")
	flag.StringVar(&cfg.Listen, "listen", "", "address that the node listens on")
	flag.BoolVar(&cfg.Insecure, "insecure", false, "take connections of other machines without TLS")
	peers := flag.String("peers", "", "addresses of all nodes, as id=host:port,…")
	dir := flag.String("dir", "", "the node's directory")
	records := flag.Int("records", 3000, "records to write")
	flag.Parse()
	var err error
	if cfg.ID != "" {
		cfg.Peers = parsePeers(*peers)
		if *child {
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin) // its end is what counts
				stop()
			}()
		}
		err = serve(ctx, *dir, cfg)
	} else {
		err = run(ctx, os.Stdout, *records)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func parsePeers(s string) map[string]string {
	peers := map[string]string{}
	for pair := range strings.SplitSeq(s, ",") {
		id, addr, _ := strings.Cut(pair, "=")
		peers[id] = addr
	}
	return peers
}

// serve is one node.
func serve(ctx context.Context, dir string, cfg quorumlog.Config) error {
	n, err := quorumlog.Open(dir, cfg)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return n.Close()
}

// fleet is the processes of the other nodes.
type fleet struct {
	dir       string
	peers     map[string]string
	processes map[string]*exec.Cmd
}

func (f *fleet) start(id string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	var all []string
	for id, addr := range f.peers {
		all = append(all, id+"="+addr)
	}
	cmd := exec.Command(exe, "-id", id, "-listen", f.peers[id], "-peers", strings.Join(all, ","), "-dir", filepath.Join(f.dir, id), "-child")
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // it ends with this process
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	f.processes[id] = cmd
	return nil
}

// kill ends a process as a power cut would: it says goodbye to nobody.
func (f *fleet) kill(id string) error {
	cmd := f.processes[id]
	delete(f.processes, id)
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	var killed *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &killed) {
		return err
	}
	return nil
}

func (f *fleet) killAll() {
	for id := range f.processes {
		_ = f.kill(id) // the program ends, and cannot do more
	}
}

var orders = quorumlog.TopicPartition{Topic: "orders"}

func run(ctx context.Context, out io.Writer, records int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "machines")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	peers, err := freeAddresses("a", "b", "c")
	if err != nil {
		return err
	}
	others := fleet{dir, peers, map[string]*exec.Cmd{}}
	defer others.killAll()
	for _, id := range []string{"b", "c"} {
		if err := others.start(id); err != nil {
			return err
		}
		fmt.Fprintf(out, "node %s is process %d at %s\n", id, others.processes[id].Process.Pid, peers[id])
	}
	n, err := quorumlog.Open(filepath.Join(dir, "a"), quorumlog.Config{ID: "a", Listen: peers["a"], Peers: peers})
	if err != nil {
		return err
	}
	defer n.Close()
	fmt.Fprintf(out, "node a is this process, %d, at %s\n", os.Getpid(), peers["a"])

	if err := n.CreateTopic(ctx, quorumlog.TopicConfig{Name: orders.Topic, Replicas: 3}); err != nil {
		return err
	}
	if err := n.TransferLeader(ctx, orders, "b"); err != nil {
		return err
	}
	if err := write(ctx, n, 0, records/3); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d records written; b leads\n", records/3)

	began := time.Now()
	if err := others.kill("b"); err != nil {
		return err
	}
	if err := write(ctx, n, records/3, records/3+1); err != nil {
		return err
	}
	fmt.Fprintf(out, "killed b; the next record was acknowledged %v later\n", time.Since(began).Round(time.Millisecond))
	if err := write(ctx, n, records/3+1, 2*records/3); err != nil {
		return err
	}
	if err := others.start("b"); err != nil {
		return err
	}
	if err := write(ctx, n, 2*records/3, records); err != nil {
		return err
	}
	fmt.Fprintf(out, "b is back, as process %d; %d records written in all\n", others.processes["b"].Process.Pid, records)
	if err := caughtUp(ctx, n, "b"); err != nil {
		return err
	}
	if err := n.TransferLeader(ctx, orders, "b"); err != nil {
		return err
	}
	fmt.Fprintln(out, "b has caught up and leads again")
	return check(ctx, out, n, records)
}

// freeAddresses returns addresses of this machine that nobody listens on.
func freeAddresses(ids ...string) (map[string]string, error) {
	found := map[string]string{}
	for _, id := range ids {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at once, so that no port is found twice
		found[id] = l.Addr().String()
	}
	return found, nil
}

// write produces the records from one number to another, each when the one before
// is acknowledged.
func write(ctx context.Context, n *quorumlog.Node, from, to int) error {
	for i := from; i < to; i++ {
		if _, err := n.Produce(ctx, orders.Topic, quorumlog.Record{Value: strconv.AppendInt(nil, int64(i), 10)}); err != nil {
			return err
		}
	}
	return nil
}

// caughtUp waits until a node has everything.
func caughtUp(ctx context.Context, n *quorumlog.Node, id string) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		s, err := n.Status(ctx, orders.Topic)
		if err != nil {
			return err
		}
		if p := s.Partitions[orders.Partition]; p.Err == nil && p.Ends[id] == p.EndOffset {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// check reads what is there.
func check(ctx context.Context, out io.Writer, n *quorumlog.Node, records int) error {
	seen, duplicated := map[string]bool{}, 0
	for r, err := range n.Read(ctx, orders.Topic, quorumlog.FromStart(), quorumlog.UntilEnd()) {
		if err != nil {
			return err
		}
		if seen[string(r.Value)] {
			duplicated++
		}
		seen[string(r.Value)] = true
	}
	_, err := fmt.Fprintf(out, "read back: %d records, lost %d duplicated %d\n", len(seen), records-len(seen), duplicated)
	return err
}
