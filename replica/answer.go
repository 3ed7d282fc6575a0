package replica

import (
	"reflect"

	"github.com/hashicorp/raft"
)

// answers waits for futures of Raft, but no longer than Raft runs: what is in
// its queues when it shuts down, it never answers. Some futures of
// hashicorp/raft look at that by themselves, through a field ShutdownCh that all
// of them have; here it is set for the others, and a test pins the field. One
// goroutine uses it.
type answers struct {
	ended chan struct{} // closed when Raft has ended

	kind reflect.Type // of the last future
	path []int        // of the field in it; nil if it has none
}

func (e *engine) answers() *answers { return &answers{ended: e.ended} }

// wait returns Raft's word on f, raft.ErrRaftShutdown if there will be none.
// Nobody else may wait for f.
func (a *answers) wait(f raft.Future) error {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer {
		return f.Error() // it is there already
	}
	v = v.Elem()
	if v.Type() != a.kind {
		a.kind, a.path = v.Type(), nil
		if field, ok := a.kind.FieldByName("ShutdownCh"); ok && field.Type == reflect.TypeOf(a.ended) {
			a.path = field.Index
		}
	}
	if a.path != nil {
		v.FieldByIndex(a.path).Set(reflect.ValueOf(a.ended))
	}
	return f.Error()
}
