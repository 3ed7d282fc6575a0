package replica

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/record"
)

// machine is the state machine that Raft feeds with committed entries. It
// stores nothing: the batches are in the log already. It moves the high
// watermark and wakes who waits for it.
type machine struct{ rep *Replica }

var _ raft.BatchingFSM = machine{}

// Apply implements raft.FSM.
func (m machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM.
func (m machine) ApplyBatch(logs []*raft.Log) []any {
	r := m.rep
	r.mu.Lock()
	high := r.high.Load()
	var unsaved int64
	for _, l := range logs {
		unsaved += int64(sizeInRing(l))
		if l.Type == raft.LogConfiguration {
			r.configuration.Store(l.Index)
		}
		if l.Type != raft.LogCommand || l.Index <= r.applied.Load() { // after an install Raft may go back
			continue
		}
		if isCommand(l.Data) {
			m.command(l, record.Offset(high))
			continue
		}
		b := record.Batch(l.Data)
		high = int64(b.NextOffset())
		r.producers.commit(b.ProducerID(), record.Offset(high))
		if b.NextOffset() > r.folded {
			if s, ok := r.transactions.apply(b); ok {
				r.aborted.add(s)
			}
		}
	}
	if last := logs[len(logs)-1]; last.Index > r.applied.Load() {
		r.applied.Store(last.Index)
		r.appliedTerm = last.Term
	}
	// Before anybody sees the new high watermark: who has, and closes, wants it saved.
	if r.unsaved.Add(unsaved) >= checkpointEvery {
		r.want(choreCheckpoint)
	}
	moved := high != r.high.Swap(high)
	r.lastStable.Store(int64(r.transactions.stable(record.Offset(high)))) // behind it, so it never lies above
	if moved {
		r.watchProducers(time.Now())
	}
	r.mu.Unlock()
	if moved {
		r.moved.fire()
	}
	return make([]any, len(logs))
}

// command applies a command that stands at offset high. One that this build does
// not know was refused before it was stored. r.mu is held.
func (m machine) command(l *raft.Log, high record.Offset) {
	r := m.rep
	c, err := decodeCommand(l.Data)
	switch {
	case err != nil:
	case c.kind == commandForget && high < r.folded: // an anchor's producers are as of then
	case c.kind == commandForget:
		r.producers.forget(c.offset, high, r.transactions.open)
		r.transactions.forget(c.offset)
		r.forgetting.below = max(r.forgetting.below, c.offset)
		r.forgetting.pending = false
		r.watchProducers(time.Now()) // more may have come meanwhile
	case int64(c.offset) > r.start.Load():
		r.start.Store(int64(c.offset))
		r.aborted.trim(c.offset)
		r.want(choreTrim)
		r.cfg.Mux.news.fire()
	}
}

// Snapshot implements raft.FSM.
func (m machine) Snapshot() (raft.FSMSnapshot, error) {
	r := m.rep
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state()
	return &snapshot{rep: r, state: s.encode()}, nil
}

// Restore implements raft.FSM. At start the state is read by Open; while
// running, a leader sends an anchor when its log begins above what this replica
// needs. Raft's main goroutine waits meanwhile, so nobody appends.
func (m machine) Restore(rc io.ReadCloser) error {
	b, err := io.ReadAll(rc)
	if err = errors.Join(err, rc.Close()); err != nil {
		return err
	}
	s, err := decodeState(b)
	if err != nil {
		return err
	}
	r := m.rep
	if err := r.store.install(s); err != nil {
		r.fail(err)
		return err
	}
	r.mu.Lock()
	if s.entry > r.applied.Load() {
		r.adopt(s)
		err = r.rememberTail()
	}
	r.mu.Unlock()
	if err != nil {
		r.fail(err)
		return err
	}
	r.moved.fire()
	r.cfg.Logger.Info("went on from the leader's log start", "entry", s.entry+1, "offset", s.high)
	return nil
}

// snapshot is the state at one entry; kilobytes.
type snapshot struct {
	rep   *Replica
	state []byte
}

// Persist implements raft.FSMSnapshot. The log must be durable up to a
// checkpoint before the checkpoint is.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.rep.store.log.Sync(); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if _, err := sink.Write(s.state); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s *snapshot) Release() {}
