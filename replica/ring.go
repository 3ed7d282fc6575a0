package replica

import (
	"sync/atomic"

	"github.com/hashicorp/raft"
)

const (
	// ringBytes bounds what a leader keeps in memory of its newest entries that are
	// applied, nodeRingBytes what all those of a node keep together that have any.
	// It is what a follower may be behind and still be served without reading the file.
	ringBytes     = 8 << 20
	nodeRingBytes = 64 << 20
	// ringEntryBytes is what an entry counts for beside its data.
	ringEntryBytes = 256
)

// ringShare divides nodeRingBytes among the rings of a node that hold something.
// The zero value is ready; a nil one is for a ring alone.
type ringShare struct{ rings atomic.Int64 }

func (s *ringShare) bytes() int {
	if s == nil {
		return ringBytes
	}
	return min(ringBytes, nodeRingBytes/int(max(1, s.rings.Load())))
}

func (s *ringShare) add(n int64) {
	if s != nil {
		s.rings.Add(n)
	}
}

// ring keeps the newest entries, so that replication and the state machine
// read no file while they keep up. The data is shared, never changed. The
// store's lock guards it.
type ring struct {
	share *ringShare
	logs  []raft.Log // consecutive, oldest first
	bytes int        // of logs, as sizeInRing counts them

	old, oldBytes int // how many of logs were applied at the last add, and their bytes
}

func sizeInRing(l *raft.Log) int { return len(l.Data) + ringEntryBytes }

// add takes the next entry in. Of the entries up to applied a leader keeps what its
// share allows, others none, as nobody asks them for any; of those that are not
// applied, which the state machine will ask for, all up to maxQueueBytes. Two stay in
// any case: Raft looks at the one before the one it sends.
func (r *ring) add(l *raft.Log, applied uint64, leads bool) {
	if len(r.logs) == 0 {
		r.share.add(1)
	}
	r.logs = append(r.logs, raft.Log{Index: l.Index, Term: l.Term, Type: l.Type, Data: l.Data})
	r.bytes += sizeInRing(l)
	for r.old < len(r.logs) && r.logs[r.old].Index <= applied {
		r.oldBytes += sizeInRing(&r.logs[r.old])
		r.old++
	}
	limit := 0
	if leads {
		limit = r.share.bytes()
	}
	for len(r.logs) > 2 && (r.oldBytes > limit || r.bytes > maxQueueBytes+limit) {
		r.drop()
	}
}

// drop drops the oldest entry.
func (r *ring) drop() {
	size := sizeInRing(&r.logs[0])
	r.bytes -= size
	if r.old > 0 {
		r.old--
		r.oldBytes -= size
	}
	r.logs[0] = raft.Log{}
	r.logs = r.logs[1:]
}

func (r *ring) get(index uint64) (raft.Log, bool) {
	if len(r.logs) == 0 || index < r.logs[0].Index || index-r.logs[0].Index >= uint64(len(r.logs)) {
		return raft.Log{}, false
	}
	return r.logs[index-r.logs[0].Index], true
}

// cut drops entry index and later, none of which is applied.
func (r *ring) cut(index uint64) {
	n := len(r.logs)
	for n > r.old && r.logs[n-1].Index >= index {
		n--
		r.bytes -= sizeInRing(&r.logs[n])
	}
	if n == 0 {
		r.clear()
		return
	}
	clear(r.logs[n:])
	r.logs = r.logs[:n]
}

// clear drops everything.
func (r *ring) clear() {
	if len(r.logs) > 0 {
		r.share.add(-1)
	}
	*r = ring{share: r.share}
}
