package replica

import (
	"errors"
	"io"

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
	for _, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		b := record.Batch(l.Data)
		high = int64(b.NextOffset())
		r.producers.commit(b.ProducerID(), record.Offset(high))
	}
	r.applied.Store(logs[len(logs)-1].Index)
	moved := high != r.high.Swap(high)
	r.mu.Unlock()
	if moved {
		r.moved.fire()
	}
	r.sinceCheckpoint(len(logs))
	return make([]any, len(logs))
}

// Snapshot implements raft.FSM.
func (m machine) Snapshot() (raft.FSMSnapshot, error) {
	r := m.rep
	r.mu.Lock()
	defer r.mu.Unlock()
	return &snapshot{rep: r, state: encodeState(record.Offset(r.high.Load()), r.producers)}, nil
}

// Restore implements raft.FSM. At start the state is read by Open; while
// running, a leader sends a snapshot only when its log begins above what this
// replica needs, and no log begins above entry 1 before retention exists.
func (m machine) Restore(rc io.ReadCloser) error {
	return errors.Join(errors.New("installing a snapshot is not supported before logs can be trimmed"), rc.Close())
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
