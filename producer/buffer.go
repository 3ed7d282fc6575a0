package producer

import "container/list"

// buffer counts the bytes of the records that are not settled yet, up to a
// limit. Who finds it full waits in line. The producer's lock guards it.
type buffer struct {
	limit, used int64
	line        list.List // of *ticket, first come first served
}

// ticket is a place in the line.
type ticket struct {
	size    int64
	element *list.Element
	granted chan struct{} // closed when the bytes are the holder's
}

// take takes size bytes if they are free and nobody waits.
func (b *buffer) take(size int64) bool {
	if b.line.Len() > 0 || b.used+size > b.limit {
		return false
	}
	b.used += size
	return true
}

// queue waits in line for size bytes.
func (b *buffer) queue(size int64) *ticket {
	t := &ticket{size: size, granted: make(chan struct{})}
	t.element = b.line.PushBack(t)
	return t
}

// leave gives back t: its place in the line, or the bytes it got meanwhile.
func (b *buffer) leave(t *ticket) {
	if t.element == nil {
		b.release(t.size)
		return
	}
	b.line.Remove(t.element)
	b.release(0) // the next one may be small enough
}

// release gives back size bytes and serves the line.
func (b *buffer) release(size int64) {
	b.used -= size
	for e := b.line.Front(); e != nil; e = b.line.Front() {
		t := e.Value.(*ticket)
		if b.used+t.size > b.limit {
			return
		}
		b.used += t.size
		b.line.Remove(e)
		t.element = nil
		close(t.granted)
	}
}
