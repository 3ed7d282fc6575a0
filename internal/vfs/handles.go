package vfs

import (
	"container/list"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// handle is the file that a File of a Capped has open below, if it has one now.
// A reference keeps it open; pins are references that are not given back.
type handle struct {
	// refs counts the references, and is below zero while there is no open file.
	// Who adds one and finds it below zero takes it off again.
	refs  atomic.Int64
	used  atomic.Bool   // since it came to the clock's hand, opening not counted
	file  File          // set under handles.mu while refs is below zero; read with a reference
	place *list.Element // in handles.clock, or nil; guarded by handles.mu
}

// shut is refs without an open file and without anyone who tries.
const shut = math.MinInt64 / 2

// acquire takes a reference, if the file is open.
func (h *handle) acquire() bool {
	if h.refs.Add(1) <= 0 {
		h.refs.Add(-1)
		return false
	}
	if !h.used.Load() { // all readers share the line
		h.used.Store(true)
	}
	return true
}

// handles are the open handles of a Capped. Which one is closed next is chosen
// as by a clock's hand that goes round: one without references that was not used
// since the hand came by.
type handles struct {
	limit              int64
	count              atomic.Int64 // handles open now or about to be
	reopened, exceeded atomic.Int64

	mu    sync.Mutex
	clock list.List // of *handle, open ones; the hand is at the front
}

// HandleStats are counts of the handles of a Capped.
type HandleStats struct {
	Limit    int
	Open     int   // now
	Reopened int64 // how often a handle that was closed to make room was needed again
	Exceeded int64 // how often a handle was opened beyond the limit
}

func (hs *handles) stats() HandleStats {
	return HandleStats{Limit: int(hs.limit), Open: int(hs.count.Load()), Reopened: hs.reopened.Load(), Exceeded: hs.exceeded.Load()}
}

// open opens a file and makes room for it before.
func (hs *handles) open(open func() (File, error)) (file File, err error) {
	hs.reserve()
	err = hs.retry(func() error {
		file, err = open()
		return err
	})
	if err != nil {
		hs.count.Add(-1)
		return nil, err
	}
	return file, nil
}

// reserve counts a handle that is about to be opened.
func (hs *handles) reserve() {
	for {
		n := hs.count.Load()
		switch {
		case n < hs.limit:
			if hs.count.CompareAndSwap(n, n+1) {
				return
			}
		case !hs.evict():
			hs.count.Add(1)
			hs.exceeded.Add(1)
			return
		}
	}
}

// retry makes a call that needs a descriptor, and closes idle handles as long as
// there is none for it. It ends: others may take what it gives free, but no more
// often than there were handles.
func (hs *handles) retry(call func() error) error {
	for tries := hs.count.Load(); ; tries-- {
		err := call()
		if err == nil || !isOutOfDescriptors(err) || tries <= 0 || !hs.evict() {
			return err
		}
	}
}

func isOutOfDescriptors(err error) bool {
	return slices.ContainsFunc(outOfDescriptors, func(e error) bool { return errors.Is(err, e) })
}

// add gives h an open file, and the caller a reference.
func (hs *handles) add(h *handle, file File) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.file = file
	h.used.Store(false)
	h.place = hs.clock.PushBack(h)
	h.refs.Add(1 - shut) // from here on others may use it
}

// release gives a reference back.
func (hs *handles) release(h *handle) {
	if h.refs.Add(-1) != 0 {
		return
	}
	for hs.count.Load() > hs.limit && hs.evict() {
	}
}

// evict closes one idle handle, if there is one.
func (hs *handles) evict() bool {
	file := hs.victim()
	if file == nil {
		return false
	}
	// All that was written is synced, so the error could tell nothing.
	_ = file.Close()
	hs.count.Add(-1)
	return true
}

// victim takes the file of an idle handle away from it. It goes round twice, as
// at first all may have been used.
func (hs *handles) victim() File {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for range 2 * hs.clock.Len() {
		h := hs.clock.Front().Value.(*handle)
		if !h.used.Swap(false) && h.refs.CompareAndSwap(0, shut) {
			hs.remove(h)
			return h.file
		}
		hs.clock.MoveToBack(h.place)
	}
	return nil
}

// retire takes a handle that keeps its file out of the hand's way.
func (hs *handles) retire(h *handle) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.remove(h)
}

// remove takes h off the clock. The caller holds mu.
func (hs *handles) remove(h *handle) {
	if h.place != nil {
		hs.clock.Remove(h.place)
		h.place = nil
	}
}

// close closes the file of h, if it is open; h is not opened again. References
// stay as they are: who uses the file learns from it that it is closed.
func (hs *handles) close(h *handle) error {
	hs.mu.Lock()
	hs.remove(h)
	open := h.refs.Load() >= 0
	hs.mu.Unlock()
	if !open {
		return nil
	}
	err := h.file.Close()
	hs.count.Add(-1)
	return err
}
