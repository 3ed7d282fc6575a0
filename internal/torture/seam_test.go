package torture_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/internal/torture"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn"
	"github.com/quorumlog/quorumlog/txn/coordinator"
)

// forgetfulFS says that files are synced, and syncs none.
type forgetfulFS struct{ vfs.FS }

func (f forgetfulFS) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return forgetfulFile{file}, err
}

func (f forgetfulFS) Open(name string) (vfs.File, error) {
	file, err := f.FS.Open(name)
	return forgetfulFile{file}, err
}

type forgetfulFile struct{ vfs.File }

func (forgetfulFile) Sync() error { return nil }

// hastyCluster acknowledges what was only handed over.
type hastyCluster struct{ producer.Cluster }

func (c hastyCluster) Append(ctx context.Context, id record.TopicID, tp record.TopicPartition, b record.Batch, _ record.Acks, done func(record.Appended, error)) {
	c.Cluster.Append(ctx, id, tp, b, record.AckQuorum, func(record.Appended, error) {})
	done(record.Appended{BaseOffset: record.NoOffset}, nil)
}

// leaderCluster takes the leader's own log for a quorum.
type leaderCluster struct{ producer.Cluster }

func (c leaderCluster) Append(ctx context.Context, id record.TopicID, tp record.TopicPartition, b record.Batch, _ record.Acks, done func(record.Appended, error)) {
	c.Cluster.Append(ctx, id, tp, b, record.AckLeader, done)
}

// anonymousCluster forgets who has sent a batch, and its sequence.
type anonymousCluster struct{ producer.Cluster }

func (c anonymousCluster) Append(ctx context.Context, id record.TopicID, tp record.TopicPartition, b record.Batch, acks record.Acks, done func(record.Appended, error)) {
	c.Cluster.Append(ctx, id, tp, b.Reissue(nil), acks, done)
}

// skippingSource leaves out the first batch of several, now and then.
type skippingSource struct{ consumer.Source }

func (s skippingSource) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	f, err := s.Source.Fetch(ctx, tp, from, maxBytes, iso)
	if len(f.Batches) > 1 && rand.IntN(4) == 0 {
		f.Batches = f.Batches[1:]
	}
	return f, err
}

// eagerSource shows records that it makes up, as a node would that shows what
// is not committed yet and later is not there.
type eagerSource struct{ consumer.Source }

func (s eagerSource) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	f, err := s.Source.Fetch(ctx, tp, from, maxBytes, iso)
	if n := len(f.Batches); n > 0 && rand.IntN(4) == 0 {
		more := f.Batches[n-1].Reissue(nil)
		more.Stamp(f.Batches[n-1].NextOffset(), f.Batches[n-1].LeaderEpoch())
		f.Batches = append(f.Batches, more)
	}
	return f, err
}

// dirtySource shows what is not committed.
type dirtySource struct{ consumer.Source }

func (s dirtySource) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, _ record.Isolation) (record.Fetched, error) {
	return s.Source.Fetch(ctx, tp, from, maxBytes, record.ReadUncommitted)
}

// forgivingTxn commits what is to be aborted.
type forgivingTxn struct{ txn.Cluster }

func (c forgivingTxn) Transaction(ctx context.Context, id string, req coordinator.Request) (coordinator.Response, error) {
	req.Commit = req.Commit || req.Op == coordinator.OpEnd
	return c.Cluster.Transaction(ctx, id, req)
}

// tearingTxn loses the records of one partition, and says that they are written.
type tearingTxn struct{ txn.Cluster }

func (c tearingTxn) Append(ctx context.Context, topic record.TopicID, tp record.TopicPartition, b record.Batch, acks record.Acks, done func(record.Appended, error)) {
	if tp.Partition == 1 {
		done(record.Appended{BaseOffset: record.NoOffset}, nil)
		return
	}
	c.Cluster.Append(ctx, topic, tp, b, acks, done)
}

func TestFaultsInTheCodeAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a cluster for each")
	}
	power := []string{"power loss", "power loss of all", "power loss in a write"}
	network := []string{"cut", "cut one way", "drop", "isolation", "transfer"}
	for _, c := range []struct {
		name string
		long bool // found at the end of a run: only with -duration
		cfg  torture.Config
		want []torture.Kind // one of them
	}{
		{"a disk that does not sync", true, torture.Config{Only: power, WrapFS: func(fs vfs.FS) vfs.FS { return forgetfulFS{fs} }},
			[]torture.Kind{torture.Lost, torture.Vanished, torture.TwoValues, torture.Diverged, torture.Stopped, torture.StaleEnd, torture.Skipped, torture.Unopened, torture.BadError}},
		{"an ack before anything is written", true, torture.Config{Only: network, WrapCluster: func(c producer.Cluster) producer.Cluster { return hastyCluster{c} }},
			[]torture.Kind{torture.Lost}},
		{"an ack before the quorum has it", true, torture.Config{Only: network, WrapCluster: func(c producer.Cluster) producer.Cluster { return leaderCluster{c} }},
			[]torture.Kind{torture.Lost, torture.TwoValues, torture.StaleEnd}},
		{"a forgotten sequence", true, torture.Config{Only: network, WrapCluster: func(c producer.Cluster) producer.Cluster { return anonymousCluster{c} }},
			[]torture.Kind{torture.Duplicate, torture.Disorder}},
		{"a reader that skips", false, torture.Config{Only: network, WrapSource: func(s consumer.Source) consumer.Source { return skippingSource{s} }},
			[]torture.Kind{torture.Skipped}},
		{"a read past the high watermark", false, torture.Config{Only: network, WrapSource: func(s consumer.Source) consumer.Source { return eagerSource{s} }},
			[]torture.Kind{torture.PastHigh}},
		{"a reader that does not ask for what is committed", false, torture.Config{Only: network, WrapSource: func(s consumer.Source) consumer.Source { return dirtySource{s} }},
			[]torture.Kind{torture.OpenRead, torture.AbortedRead, torture.PastHigh}},
		{"an abort that commits", false, torture.Config{Only: network, WrapTxn: func(c txn.Cluster) txn.Cluster { return forgivingTxn{c} }},
			[]torture.Kind{torture.AbortedRead}},
		{"a transaction of which a part is lost", true, torture.Config{Only: network, WrapTxn: func(c txn.Cluster) txn.Cluster { return tearingTxn{c} }},
			[]torture.Kind{torture.Torn, torture.Lost}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.long && *duration == 0 {
				t.Skip("takes long; give a -duration")
			}
			var report *torture.Report
			for range 5 {
				c.cfg.Seed, c.cfg.Duration, c.cfg.Slow, c.cfg.Bound = rand.Uint64N(1e9), 6*time.Second, slow(), 10*time.Second
				var err error
				report, err = torture.Run(context.Background(), c.cfg)
				require.NoError(t, err)
				for _, k := range c.want {
					if report.Has(k) {
						t.Log(report.Violations[0])
						return
					}
				}
			}
			require.Fail(t, "not found", "%v", report)
		})
	}
}
