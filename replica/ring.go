package replica

import "github.com/hashicorp/raft"

// ringBytes bounds what one replica keeps of its newest entries in memory.
const ringBytes = 4 << 20

// ring keeps the newest entries, so that replication and the state machine
// read no file while they keep up. The data is shared, never changed. The
// store's lock guards it.
type ring struct {
	logs  []raft.Log // consecutive, oldest first
	bytes int
}

func (r *ring) add(l *raft.Log) {
	r.logs = append(r.logs, raft.Log{Index: l.Index, Term: l.Term, Type: l.Type, Data: l.Data})
	r.bytes += len(l.Data)
	drop := 0
	for r.bytes > ringBytes && drop < len(r.logs)-1 {
		r.bytes -= len(r.logs[drop].Data)
		drop++
	}
	if len(r.logs)-drop > ringBytes/1024 {
		drop = len(r.logs) / 2 // entries without data count too
		r.bytes = 0
		for i := range r.logs[drop:] {
			r.bytes += len(r.logs[drop+i].Data)
		}
	}
	if drop > 0 {
		clear(r.logs[:drop])
		r.logs = r.logs[drop:]
	}
}

func (r *ring) get(index uint64) (raft.Log, bool) {
	if len(r.logs) == 0 || index < r.logs[0].Index || index-r.logs[0].Index >= uint64(len(r.logs)) {
		return raft.Log{}, false
	}
	return r.logs[index-r.logs[0].Index], true
}

// cut drops entry index and later.
func (r *ring) cut(index uint64) {
	for n := len(r.logs); n > 0 && r.logs[n-1].Index >= index; n-- {
		r.bytes -= len(r.logs[n-1].Data)
		r.logs[n-1] = raft.Log{}
		r.logs = r.logs[:n-1]
	}
}
