package replica

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// checkpointEvery is after how many bytes of applied entries, as sizeInRing counts
// them, a checkpoint is written. It bounds what is replayed after a crash: as much as a
// segment of the default size holds, or a quarter of a million small entries.
const checkpointEvery = 64 << 20

// Replica is one partition on one node: a member of its Raft group. Its methods
// may be called at once. It owns two goroutines and those of Raft, which only
// runs while it is awake; Close waits for all of them.
type Replica struct {
	cfg         Config
	store       *store
	checkpoints *checkpoints
	progress    progress
	following   following
	id          groupID
	stable      *groupStable
	run         atomic.Pointer[engine]
	started     chan struct{} // closed when run is set, or will never be
	opened      time.Time
	wg          sync.WaitGroup
	closing     sync.Once

	moved   signal // the high watermark moved, or the replica ended
	changed signal // leadership changed, the replica fell asleep or woke up, or ended

	high    atomic.Int64  // high watermark: everything below is committed and applied
	applied atomic.Uint64 // the last entry applied

	lastStable atomic.Int64 // last stable offset: below it no transaction is open
	aborted    aborted

	start atomic.Int64 // log start offset that was decided; segments may begin below
	since atomic.Int64 // where the log ended when its newest term began

	turning sync.Mutex          // held while the replica goes to sleep, and while it wakes up
	nap     atomic.Pointer[nap] // nil while it is awake, which means that Raft runs
	claim   atomic.Pointer[nap] // that it wakes from to serve somebody, until it is known who leads
	used    atomic.Int64        // when something was stored last, since opened

	// Of the tries to go to sleep; the watch's goroutine alone uses them.
	sleepUsed  int64         // used at the last one
	sleepAgain time.Time     // when the next one may be
	sleepPause time.Duration // between them

	unsaved atomic.Int64  // bytes of the entries applied since the last checkpoint
	chores  atomic.Uint32 // asked for and not done

	handed   chan *proposal // to settle, in the order Raft has them
	barriers chan struct{}  // holds one for each barrier that Raft has
	changing chan struct{}  // capacity 1: held by the change of membership in progress

	unsure        atomic.Uint32 // an unsure
	configuration atomic.Uint64 // the entry of the newest membership applied here

	mu           sync.Mutex // guards what follows, and the fields of proposals
	failed       error      // why the replica stopped by itself
	closed       bool
	appliedTerm  uint64 // of the last entry applied
	producers    producers
	transactions transactions
	folded       record.Offset // batches below it are in producers and transactions, whether stored here or not
	proposals    map[proposalID]*proposal
	nextProposal uint64
	queue        []*proposal // wait for room in Raft
	queueBytes   int         // of all proposals
	inFlight     int         // proposals Raft has
	held         []*proposal // committed, with AckAll: until all that are in sync have them
	heldTimer    *time.Timer // looks at held again; nil while none is needed
	forgetting   forgetting
	frozen       bool        // nothing is handed to Raft
	busy         int         // how many keep the replica awake
	claimUntil   time.Time   // the end of claim at the latest
	claimTimer   *time.Timer // ends it then
}

// Open opens the partition's replica on this node, or makes it. It returns
// without waiting for a leader. If its log is damaged, it asks the other replicas
// for what is missing first, for some seconds at most: *DamagedError.
func Open(ctx context.Context, cfg Config) (*Replica, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Logger = cfg.Logger.With("partition", cfg.TopicPartition.String(), "node", cfg.Node)
	r, suspect, err := open(ctx, cfg)
	if err != nil && suspect { // that there is damage was not known before: now it is looked for
		r, _, err = open(ctx, cfg)
	}
	return r, err
}

// open says too, beside an error, whether damage was met that nobody knew of.
func open(ctx context.Context, cfg Config) (*Replica, bool, error) {
	id := newGroupID(cfg.TopicID, cfg.TopicPartition.Partition)
	stable := &groupStable{store: cfg.Stable.store, prefix: string(id[:])}
	suspect, err := stable.GetUint64([]byte(keySuspect))
	if err != nil {
		return nil, false, err
	}
	l, err := openLog(ctx, cfg, suspect != 0)
	if err != nil {
		return nil, false, err
	}
	r := &Replica{
		cfg: cfg, id: id, stable: stable, opened: time.Now(), started: make(chan struct{}),
		handed: make(chan *proposal, maxInFlight), barriers: make(chan struct{}, maxBarriers), changing: make(chan struct{}, 1), producers: producers{}, transactions: newTransactions(), proposals: map[proposalID]*proposal{},
	}
	r.store = &store{rep: r, log: l, ring: ring{share: &cfg.Mux.rings}}
	if err := r.open(ctx); err != nil {
		close(r.started)
		r.cfg.Mux.hide(r)
		err = errors.Join(fmt.Errorf("open %v on node %q: %w", cfg.TopicPartition, cfg.Node, err), r.store.log.Close())
		return nil, suspect == 0 && r.suspect(err), err
	}
	return r, false, nil
}

func openLog(ctx context.Context, cfg Config, readAll bool) (*log.Log, error) {
	return log.Open(ctx, cfg.Dir, log.Config{
		FS: cfg.FS, TopicID: cfg.TopicID, Partition: cfg.TopicPartition.Partition,
		SegmentBytes: cfg.SegmentBytes, SegmentAge: cfg.SegmentAge, Flush: cfg.Flush, Flusher: cfg.Flusher, Logger: cfg.Logger,
		ReadAll: readAll,
	})
}

func (r *Replica) open(ctx context.Context) error {
	r.stable.failed = r.failInRaft
	if err := r.repair(ctx); err != nil {
		return err
	}
	forgot, err := r.restore()
	if err != nil {
		return err
	}
	made := r.store.log.Bounds() == log.Bounds{First: 1, Next: 1}
	fresh, err := r.bootstrap(r.stable)
	if err != nil {
		return err
	}
	if err := r.doubt(made, forgot); err != nil {
		return err
	}
	if err := r.startRaft(); err != nil {
		return err
	}
	close(r.started)
	r.wg.Go(r.settle)
	r.want(choreTrim) // a crash may have come between decision and deed
	if err := r.cfg.Mux.add(r.raft().transport); err != nil {
		return errors.Join(err, r.Close())
	}
	r.cfg.Mux.watch.add(r)
	if fresh && r.cfg.Peers[0] == r.cfg.Node || r.alone() {
		return r.raft().transport.campaign() // nobody else leads yet
	}
	return nil
}

// restore reads the checkpoint and rebuilds the producers of the log's tail. forgot
// says that the log ends before the checkpoint, whose entries were all on disk.
func (r *Replica) restore() (forgot bool, err error) {
	var why error
	r.checkpoints, why = openCheckpoints(r.cfg.FS, r.cfg.Dir, r.store.log)
	if r.checkpoints.meta != nil {
		var s state
		if s, why = decodeState(r.checkpoints.state); why == nil {
			why = r.resume(s)
			forgot = s.entry >= uint64(r.store.log.Bounds().Next)
		}
	}
	if r.checkpoints.meta == nil || why != nil {
		if why != nil {
			r.cfg.Logger.Warn("checkpoint not used; the log is replayed from its start", "reason", why)
		}
		r.adopt(r.checkpoints.replay(r.founders(), r.cfg.Logger))
	}
	return forgot, r.rememberTail()
}

// rememberTail notes who wrote the batches that are stored and not applied.
func (r *Replica) rememberTail() error {
	bounds := r.store.log.Bounds()
	for from := max(record.Offset(r.high.Load()), r.folded, bounds.Start); from < bounds.End; {
		batches, err := r.store.log.Read(from, bounds.End, 1<<20)
		if hole := (*log.CorruptError)(nil); r.single() && errors.As(err, &hole) && hole.To > from {
			from = hole.To // who wrote what was there is lost with it
			continue
		}
		if err != nil {
			return err
		}
		for _, b := range batches {
			r.remember(b)
			from = b.NextOffset()
		}
	}
	return nil
}

// resume goes on from a checkpoint if it fits the log. An anchor that was being
// installed when the process ended is installed now.
func (r *Replica) resume(s state) error {
	if s.anchor {
		if err := r.store.install(s); err != nil {
			return err
		}
		r.store.gone, r.store.installed = 0, false // Raft knows of nothing yet
	}
	if b := r.store.log.Bounds(); s.entry >= uint64(b.Next) || s.entry+1 < uint64(b.First) || s.high > b.End {
		return fmt.Errorf("it is at entry %d, the log holds [%d, %d)", s.entry, b.First, b.Next)
	}
	r.adopt(s)
	return nil
}

// adopt takes over a state. r.mu is held, or nobody knows r yet.
func (r *Replica) adopt(s state) {
	r.high.Store(int64(s.high))
	r.start.Store(int64(s.start))
	r.applied.Store(s.entry)
	r.appliedTerm, r.folded, r.producers, r.transactions = s.term, s.folded, s.producers, s.transactions
	r.aborted.replace(s.aborted)
	r.lastStable.Store(int64(r.transactions.stable(s.high)))
}

// state returns what was applied so far. r.mu is held.
func (r *Replica) state() state {
	high := record.Offset(r.high.Load())
	return state{
		entry: r.applied.Load(), term: r.appliedTerm, high: high, folded: max(high, r.folded),
		start: record.Offset(r.start.Load()), producers: r.producers,
		transactions: r.transactions, aborted: r.aborted.all(),
	}
}

// remember notes who wrote a batch that was stored. r.mu is held, or nobody knows r yet.
func (r *Replica) remember(b record.Batch) {
	if b.NextOffset() > r.folded {
		r.producers.add(b)
		r.transactions.add(b)
	}
}

// founders is the membership that a new partition begins with.
func (r *Replica) founders() (c raft.Configuration) {
	for _, peer := range r.cfg.Peers {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(peer), Address: raft.ServerAddress(peer)})
	}
	return c
}

// bootstrap gives a partition that was never opened before its first entry, the
// membership. Every founder writes the same one. fresh says that it did so.
func (r *Replica) bootstrap(stable *groupStable) (fresh bool, err error) {
	if !slices.Contains(r.cfg.Peers, r.cfg.Node) {
		return false, nil // it joins: the leader sends everything, the membership too
	}
	if b := r.store.log.Bounds(); b.First != b.Next || r.checkpoints.meta != nil {
		return false, nil
	}
	term, err := stable.GetUint64([]byte(keyTerm))
	if err != nil || term > 1 { // it took part in elections: the others fill it
		return false, err
	}
	if err := stable.store.SetUint64(stable.key(keyTerm), 1); err != nil { // before the entry of that term: the first election is for term 2
		return false, err
	}
	return true, r.store.log.Append([]segment.Entry{r.founding()})
}

// founding is the first entry of a partition.
func (r *Replica) founding() segment.Entry {
	return segment.Entry{Number: 1, Term: 1, Kind: segment.KindConfiguration, Data: raft.EncodeConfiguration(r.founders())}
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
	r.suspect(err)
	r.moved.fire()
	r.announce()
	go func() { // Raft waits for its own goroutines, and this may be one of them
		<-r.started
		r.turning.Lock()
		defer r.turning.Unlock()
		if e := r.raft(); e != nil {
			e.shutdown()
		}
		r.nap.Store(nil)
		r.endClaim()
		r.refuseQueue(r.failed)
		if r.cfg.Failed != nil {
			r.cfg.Failed(r.failed)
		}
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
		r.endClaim()
		r.turning.Lock() // nobody goes to sleep or wakes up from here on
		n := r.nap.Load()
		r.turning.Unlock()
		r.cfg.Mux.watch.remove(r)
		if n != nil && n.leader == r.cfg.Node {
			r.handDown(n)
		}
		if failed == nil && n == nil {
			if r.unsaved.Load() > 0 {
				r.checkpoint() // before the transfer, during which Raft makes none
			}
			if r.leads() && !r.alone() {
				_ = r.raft().answers().wait(r.raft().LeadershipTransfer()) // if nobody can take over, an election will
			}
		}
		r.raft().shutdown()
		r.store.rest()
		close(r.handed)
		r.wg.Wait()
		r.releaseHeld() // nobody waits from here on, so nobody starts the timer again
		r.mu.Lock()
		if r.heldTimer != nil {
			r.heldTimer.Stop()
		}
		r.mu.Unlock()
		r.announce()
		r.cfg.Mux.hide(r)
		var unsynced error // Close is silent about a log that takes no more writes
		if r.cfg.Flush != log.FlushEach {
			unsynced = r.store.log.Sync()
		}
		err = r.store.log.Close()
		if err == nil && failed == nil && unsynced == nil && r.cfg.Flush != log.FlushEach {
			err = r.stable.mark(keyInUse, 0) // all is on disk
		}
		if failed != nil {
			err = nil // told already
		}
	})
	return err
}
