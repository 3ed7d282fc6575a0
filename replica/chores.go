package replica

// Chores are what the state machine asks for but must not wait for: they touch
// the disk. A goroutine does them one after the other and ends when there are
// none, so an idle replica has none.
const (
	choreCheckpoint = 1 << iota
	choreTrim
	choreForget
	choreRunning // somebody does them
)

// want asks for chores. Only Raft's state machine and Open call it, so none
// begins after Close has stopped Raft.
func (r *Replica) want(chores uint32) {
	if r.chores.Or(chores|choreRunning)&choreRunning != 0 {
		return // whoever does the ones before will see these too
	}
	r.wg.Go(func() {
		<-r.started
		for {
			todo := r.chores.Swap(choreRunning)
			if todo == choreRunning && r.chores.CompareAndSwap(choreRunning, 0) {
				return
			}
			if todo&choreCheckpoint != 0 {
				r.checkpoint()
			}
			if todo&choreForget != 0 {
				r.forgetProducers()
			}
			r.trimSegments() // after a checkpoint more may go
		}
	})
}

// checkpoint writes one. Without it the next start replays more, so an error is
// no reason to stop; there is none to write when nothing was applied since.
func (r *Replica) checkpoint() {
	applied := r.unsaved.Load()
	if err := r.raft().Snapshot().Error(); err != nil {
		r.cfg.Logger.Debug("no checkpoint written", "reason", err)
		return
	}
	r.unsaved.Add(-applied)
}
