package replica

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// checkpointEvery is after how many applied entries a checkpoint is written. It
// bounds the replay after a crash to about a quarter of a second.
const checkpointEvery = 500_000

// Replica is one partition on one node: a member of its Raft group. Its methods
// may be called at once. It owns two goroutines and those of Raft; Close waits
// for all of them.
type Replica struct {
	cfg         Config
	store       *store
	checkpoints *checkpoints
	transport   *groupTransport
	raft        *raft.Raft
	started     chan struct{} // closed when raft is set, or will never be
	wg          sync.WaitGroup
	closing     sync.Once

	moved   signal // the high watermark moved, or the replica ended
	changed signal // leadership changed, or the replica ended

	high    atomic.Int64  // high watermark: everything below is committed and applied
	applied atomic.Uint64 // the last entry applied

	unsaved       atomic.Int64 // entries applied since the last checkpoint
	checkpointing atomic.Bool

	handed chan *proposal // to settle, in the order Raft has them

	mu           sync.Mutex // guards what follows, and the fields of proposals
	failed       error      // why the replica stopped by itself
	closed       bool
	producers    producers
	proposals    map[uint64]*proposal
	nextProposal uint64
	queue        []*proposal // wait for room in Raft
	queueBytes   int         // of all proposals
	inFlight     int         // proposals Raft has
}

// Open opens the partition's replica on this node, or makes it. It returns
// without waiting for a leader.
func Open(ctx context.Context, cfg Config) (*Replica, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Logger = cfg.Logger.With("partition", cfg.TopicPartition.String(), "node", cfg.Node)
	l, err := log.Open(ctx, cfg.Dir, log.Config{
		FS: cfg.FS, TopicID: cfg.TopicID, Partition: cfg.TopicPartition.Partition,
		SegmentBytes: cfg.SegmentBytes, Flush: cfg.Flush, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	r := &Replica{
		cfg: cfg, started: make(chan struct{}),
		handed: make(chan *proposal, maxInFlight), producers: producers{}, proposals: map[uint64]*proposal{},
	}
	r.store = &store{rep: r, log: l, booting: true}
	if err := r.open(); err != nil {
		close(r.started)
		return nil, errors.Join(fmt.Errorf("open %v on node %q: %w", cfg.TopicPartition, cfg.Node, err), l.Close())
	}
	return r, nil
}

func (r *Replica) open() error {
	if err := r.restore(); err != nil {
		return err
	}
	id := newGroupID(r.cfg.TopicID, r.cfg.TopicPartition.Partition)
	stable := &groupStable{store: r.cfg.Stable.store, prefix: string(id[:]), failed: r.failInRaft}
	fresh, err := r.bootstrap(stable)
	if err != nil {
		return err
	}
	r.transport = newGroupTransport(r.cfg.Mux, id, r.cfg.Node, max(time.Second, 4*r.cfg.ElectionTimeout))
	if r.raft, err = r.startRaft(stable); err != nil {
		return errors.Join(err, r.transport.Close())
	}
	r.store.booting = false
	r.checkpoints.started()
	r.raft.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.LeaderObservation, raft.RaftState:
			r.changed.fire()
		}
		return false
	}))
	close(r.started)
	r.wg.Go(r.settle)
	if err := r.cfg.Mux.add(r.transport); err != nil {
		return errors.Join(err, r.Close())
	}
	if fresh && r.cfg.Peers[0] == r.cfg.Node || len(r.cfg.Peers) == 1 {
		return r.transport.campaign() // nobody else leads yet
	}
	return nil
}

// restore reads the checkpoint and rebuilds the producers of the log's tail.
func (r *Replica) restore() error {
	var why error
	r.checkpoints, why = openCheckpoints(r.cfg.FS, r.cfg.Dir)
	bounds := r.store.log.Bounds()
	if m := r.checkpoints.meta; m != nil {
		high, p, err := decodeState(r.checkpoints.state)
		switch {
		case err != nil:
			why = err
		case record.EntryNumber(m.Index) >= bounds.Next || high > bounds.End:
			why = fmt.Errorf("it is at entry %d, the log ends before %d", m.Index, bounds.Next)
		default:
			r.high.Store(int64(high))
			r.applied.Store(m.Index)
			r.producers = p
		}
	}
	if why != nil {
		r.cfg.Logger.Warn("checkpoint not used; the log is replayed from its start", "reason", why)
		r.checkpoints.drop()
	}
	for from := max(record.Offset(r.high.Load()), bounds.Start); from < bounds.End; {
		batches, err := r.store.log.Read(from, bounds.End, 1<<20)
		if err != nil {
			return err
		}
		for _, b := range batches {
			r.producers.add(b)
			from = b.NextOffset()
		}
	}
	return nil
}

// bootstrap gives a partition that was never opened before its first entry, the
// membership. Every member writes the same one. fresh says that it did so.
func (r *Replica) bootstrap(stable *groupStable) (fresh bool, err error) {
	if b := r.store.log.Bounds(); b.First != b.Next || r.checkpoints.meta != nil {
		return false, nil
	}
	term, err := stable.GetUint64([]byte(keyTerm))
	if err != nil || term > 1 { // it took part in elections: the others fill it
		return false, err
	}
	var members raft.Configuration
	for _, peer := range r.cfg.Peers {
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(peer), Address: raft.ServerAddress(peer)})
	}
	if err := stable.store.SetUint64(stable.key(keyTerm), 1); err != nil { // before the entry of that term: the first election is for term 2
		return false, err
	}
	return true, r.store.log.Append([]segment.Entry{{
		Number: 1, Term: 1, Kind: segment.KindConfiguration, Data: raft.EncodeConfiguration(members),
	}})
}

// startRaft calls NewRaft, which panics when the log cannot be read, and whose
// goroutine ends when the vote file cannot be written.
func (r *Replica) startRaft(stable raft.StableStore) (ra *raft.Raft, err error) {
	t := r.cfg.ElectionTimeout
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(r.cfg.Node)
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = t, t, t/2
	conf.CommitTimeout = min(50*time.Millisecond, t/2)
	conf.MaxAppendEntries = maxInFlight
	conf.BatchApplyCh = true
	conf.TrailingLogs = ^uint64(0) // retention is ours
	conf.SnapshotThreshold = ^uint64(0)
	conf.SnapshotInterval = 24 * time.Hour
	conf.NoSnapshotRestoreOnStart = true // restore did it
	conf.NoLegacyTelemetry = true
	conf.Logger = newRaftLogger(r.cfg.Logger)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("start raft: %v", p)
			}
		}()
		err = errors.New("start raft: votes cannot be written") // if the goroutine ends in between
		ra, err = raft.NewRaft(conf, machine{r}, r.store, stable, r.checkpoints, r.transport)
	}()
	<-done
	if err == nil && ra == nil {
		err = errors.New("start raft: it ended early")
	}
	return ra, err
}

// fail stops the replica for good: what it holds can no longer be trusted, or no
// longer be written. The others go on.
func (r *Replica) fail(err error) {
	r.mu.Lock()
	if r.failed != nil {
		r.mu.Unlock()
		return
	}
	r.failed = fmt.Errorf("%v on node %q has stopped: %w", r.cfg.TopicPartition, r.cfg.Node, err)
	r.mu.Unlock()
	r.cfg.Logger.Error("replica stopped", "error", err)
	r.moved.fire()
	r.changed.fire()
	go func() { // Raft waits for its own goroutines, and this may be one of them
		<-r.started
		if r.raft != nil {
			r.raft.Shutdown()
			_ = r.transport.Close()
		}
		r.refuseQueue(r.failed)
	}()
}

// failInRaft is fail for places where Raft would panic if they returned: it ends
// the calling goroutine, which is one of Raft's.
func (r *Replica) failInRaft(err error) {
	r.fail(err)
	runtime.Goexit()
}

// Close hands leadership on, writes a checkpoint and stops. It waits at most
// about one election timeout for the others, and may be called twice.
func (r *Replica) Close() error {
	var err error
	r.closing.Do(func() {
		r.mu.Lock()
		r.closed = true
		failed := r.failed
		r.mu.Unlock()
		r.moved.fire() // who waits is told at once
		r.refuseQueue(record.ErrClosed)
		if failed == nil {
			if r.leads() && len(r.raft.GetConfiguration().Configuration().Servers) > 1 {
				_ = r.raft.LeadershipTransfer().Error() // if nobody can take over, an election will
			}
			if r.unsaved.Load() > 0 {
				_ = r.raft.Snapshot().Error() // without it the next start replays more
			}
		}
		ended := r.raft.Shutdown()
		_ = r.transport.Close()
		_ = ended.Error()
		close(r.handed)
		r.wg.Wait()
		r.changed.fire()
		err = r.store.log.Close()
		if failed != nil {
			err = nil // told already
		}
	})
	return err
}

// sinceCheckpoint counts applied entries and writes a checkpoint now and then.
func (r *Replica) sinceCheckpoint(n int) {
	if r.unsaved.Add(int64(n)) < checkpointEvery || !r.checkpointing.CompareAndSwap(false, true) {
		return
	}
	r.wg.Go(func() {
		defer r.checkpointing.Store(false)
		<-r.started
		if err := r.raft.Snapshot().Error(); err == nil {
			r.unsaved.Store(0)
		}
	})
}

func (r *Replica) leads() bool { return r.raft.State() == raft.Leader }

// Leader returns the node that leads, "" if this replica knows of none, and the
// epoch as far as it knows.
func (r *Replica) Leader() (node string, epoch record.LeaderEpoch) {
	_, id := r.raft.LeaderWithID()
	return string(id), record.LeaderEpoch(r.raft.CurrentTerm())
}

// Changed returns a channel that is closed when leadership changes next, or when
// the replica ends. Take it before looking at Leader.
func (r *Replica) Changed() <-chan struct{} { return r.changed.wait() }

func (r *Replica) notLeader() error {
	node, epoch := r.Leader()
	if node == r.cfg.Node { // not any more, or not in the epoch asked for
		node = ""
	}
	return &record.NotLeaderError{TopicPartition: r.cfg.TopicPartition, Leader: node, Epoch: epoch}
}

// TransferLeadership hands leadership to the follower that is most up to date.
// *record.NotLeaderError if this replica does not lead. The wait ends with ctx,
// the transfer goes on.
func (r *Replica) TransferLeadership(ctx context.Context) error {
	if !r.leads() {
		return r.notLeader()
	}
	return r.await(ctx, r.raft.LeadershipTransfer())
}

// Barrier waits until everything that older epochs left in the log is applied,
// and returns the epoch this replica leads in and the high watermark then.
// *record.NotLeaderError if it does not lead, or no longer.
func (r *Replica) Barrier(ctx context.Context) (record.LeaderEpoch, record.Offset, error) {
	term := r.raft.CurrentTerm()
	if !r.leads() {
		return 0, 0, r.notLeader()
	}
	if err := r.await(ctx, r.raft.Barrier(0)); err != nil {
		return 0, 0, err
	}
	if !r.leads() || r.raft.CurrentTerm() != term {
		return 0, 0, r.notLeader()
	}
	return record.LeaderEpoch(term), record.Offset(r.high.Load()), nil
}

// await waits for Raft's word, which comes when leadership is lost at the latest.
func (r *Replica) await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		if err != nil {
			return r.notWritten(err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Status is what one replica knows of its partition.
type Status struct {
	record.TopicPartition
	Node   string             // this replica's
	Leader string             // "" when it knows of none
	Epoch  record.LeaderEpoch // the newest it knows of
	// StartOffset <= HighWatermark <= EndOffset, of this replica's log.
	StartOffset, HighWatermark, EndOffset record.Offset
	SizeBytes                             int64
	Err                                   error // why it has stopped by itself; nil while it runs
}

// Status returns the state of this moment.
func (r *Replica) Status() Status {
	node, epoch := r.Leader()
	high := record.Offset(r.high.Load()) // before the bounds: the end never lies below it
	b := r.store.log.Bounds()
	r.mu.Lock()
	defer r.mu.Unlock()
	return Status{
		TopicPartition: r.cfg.TopicPartition, Node: r.cfg.Node, Leader: node, Epoch: epoch,
		StartOffset: b.Start, HighWatermark: high, EndOffset: b.End,
		SizeBytes: r.store.log.Size(), Err: r.failed,
	}
}
