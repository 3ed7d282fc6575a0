package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog"
)

func p13() scenario {
	var p reopening
	return scenario{id: "P13", title: "open a large partition again, until a record was read", unit: seconds, once: true, rows: []row{
		{"quorumlog, killed before", "1 node, FlushNever", cachedOne, goal{}, p.run},
		{"scan of the unsynced tail", "1 GB/s", pageCacheRead, within(1), p.scan},
		{"write, fdatasync of that tail", "one file", syncedOne, goal{}, p.write},
		{"quorumlog, closed before", "1 node, FlushNever", cachedOne, atMost(1), p.clean},
	}}
}

// reopening is one partition, filled once for all rows.
type reopening struct {
	closed time.Duration // to open it after Close
	tail   int64         // bytes that were not synced when its process was killed
	note   string
}

const reopenValue = 1 << 10 // bytes

// run fills a partition, opens it after Close, then has a process add a tail to it,
// which it kills, and opens it once more.
func (p *reopening) run(ctx context.Context, e env) (sample, error) {
	bytes := e.large
	free, known := freeSpace(e.dir)
	if known {
		bytes = min(bytes, free/2)
	}
	p.note = fmt.Sprintf("%.3g GiB", float64(bytes)/(1<<30))
	if bytes < e.large {
		p.note += fmt.Sprintf(" for want of space (%.3g GiB are free)", float64(free)/(1<<30))
	}
	if err := fillPartition(ctx, e.dir, bytes); err != nil {
		return sample{}, err
	}
	var err error
	if p.closed, err = reopen(ctx, e.dir); err != nil {
		return sample{}, fmt.Errorf("after Close: %w", err)
	}
	if p.tail, err = killed(ctx, e.dir); err != nil {
		return sample{}, err
	}
	e.prepared()
	took, err := reopen(ctx, e.dir)
	if err != nil {
		err = fmt.Errorf("after a kill: %w", err)
	}
	return sample{records: 1, took: took, note: p.note}, err
}

func (p *reopening) scan(context.Context, env) (sample, error) {
	took := time.Duration(p.tail) * time.Second / 1e9
	return sample{records: 1, took: took, note: p.tailNote()}, p.filled()
}

// write is what recovery does with what it keeps of a tail: a sync may have failed
// before, so the tail is written once more.
func (p *reopening) write(_ context.Context, e env) (sample, error) {
	f, err := os.Create(filepath.Join(e.dir, "f"))
	if err != nil {
		return sample{}, err
	}
	b, began := make([]byte, block), time.Now()
	for at := int64(0); at < p.tail && err == nil; at += block {
		_, err = f.Write(b[:min(block, p.tail-at)])
	}
	err = errors.Join(err, dataSync(f))
	return sample{records: 1, took: time.Since(began), note: p.tailNote()}, errors.Join(err, f.Close(), p.filled())
}

func (p *reopening) tailNote() string { return fmt.Sprintf("%.3g MiB", float64(p.tail)/(1<<20)) }

func (p *reopening) clean(context.Context, env) (sample, error) {
	return sample{records: 1, took: p.closed, note: p.note}, p.filled()
}

func (p *reopening) filled() error {
	if p.tail == 0 {
		return errors.New("there is no partition")
	}
	return nil
}

func fillPartition(ctx context.Context, dir string, bytes int64) error {
	n, err := quorumlog.Open(dir, quorumlog.Config{})
	if err != nil {
		return err
	}
	// Segments of the default size, and smaller ones where there would be few.
	cfg := quorumlog.TopicConfig{Name: topic, Partitions: 1, Flush: quorumlog.FlushNever, SegmentBytes: max(4<<20, min(64<<20, bytes/16))}
	if err := n.CreateTopic(ctx, cfg); err != nil {
		return errors.Join(err, n.Close())
	}
	return errors.Join(add(ctx, n, int(bytes/reopenValue)), n.Close())
}

// add appends so many records.
func add(ctx context.Context, n *quorumlog.Node, records int) error {
	p, err := n.Producer(quorumlog.ProducerConfig{})
	if err != nil {
		return err
	}
	r := quorumlog.Record{Topic: topic, Value: env{size: reopenValue}.value()}
	failed := make(chan error, 1)
	for range records {
		p.SendAsync(ctx, r, func(_ quorumlog.Result, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	err = errors.Join(p.Flush(ctx), p.Close(ctx))
	select {
	case first := <-failed:
		return errors.Join(first, err)
	default:
		return err
	}
}

// reopen returns how long it takes until the newest record was read.
func reopen(ctx context.Context, dir string) (time.Duration, error) {
	began := time.Now()
	n, err := quorumlog.Open(dir, quorumlog.Config{})
	if err != nil {
		return 0, err
	}
	got := 0
	for r, err := range n.Read(ctx, topic, quorumlog.Backwards(), quorumlog.UntilEnd()) {
		if err != nil {
			return 0, errors.Join(err, n.Close())
		}
		got = len(r.Value)
		break
	}
	took := time.Since(began)
	if got != reopenValue {
		err = fmt.Errorf("the newest record has %d bytes", got)
	}
	return took, errors.Join(err, n.Close())
}

// tailEnv names the directory to a process that is there to be killed.
const tailEnv = "QUORUMLOG_BENCH_TAIL"

// killed starts this program once more, has it write a tail to the partition in dir,
// and kills it. It returns how long the tail is.
func killed(ctx context.Context, dir string) (int64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), tailEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	line, said := bufio.NewReader(out).ReadString('\n')
	err = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	if said != nil || line != tailWritten {
		return 0, errors.Join(err, errors.New("the process that is to be killed ended by itself"))
	}
	_, size, listed := newestSegment(dir)
	return size, errors.Join(err, listed)
}

const tailWritten = "written\n"

// writeTail appends to the partition in dir until a segment that was not there is
// three quarters full: a segment before the last is synced. It returns with an error
// or never.
func writeTail(dir string) error {
	ctx := context.Background()
	before, full, err := newestSegment(dir)
	if err != nil {
		return err
	}
	segments, err := segmentFiles(dir)
	if err != nil {
		return err
	}
	for _, file := range segments {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		full = max(full, info.Size())
	}
	n, err := quorumlog.Open(dir, quorumlog.Config{})
	if err != nil {
		return err
	}
	for {
		if err := add(ctx, n, max(1, int(full/16/reopenValue))); err != nil {
			return err
		}
		name, size, err := newestSegment(dir)
		if err != nil {
			return err
		}
		if name != before && size >= full/4*3 {
			fmt.Print(tailWritten)
			select {}
		}
	}
}

// segmentFiles returns the files of the partition in dir, oldest first.
func segmentFiles(dir string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(dir, "partitions", topic+".*-0", "*.log"))
	if err == nil && len(all) == 0 {
		err = errors.New("the partition has no segments")
	}
	slices.Sort(all)
	return all, err
}

func newestSegment(dir string) (name string, size int64, err error) {
	all, err := segmentFiles(dir)
	if err != nil {
		return "", 0, err
	}
	name = all[len(all)-1]
	info, err := os.Stat(name)
	if err != nil {
		return "", 0, err
	}
	return name, info.Size(), nil
}
