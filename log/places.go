package log

import (
	"sync"

	"github.com/quorumlog/quorumlog/index"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// places remembers where the last few readers stopped, so that one who reads on
// from there needs no index. The writer never takes its lock.
type places struct {
	mu    sync.Mutex
	known [4]place // as many readers at once as a partition is likely to have
	next  int      // the one to forget next
}

type place struct {
	seg  *segment.Segment
	cuts uint64 // of the view it was found in
	at   index.Place
}

// offset returns a place in seg from which the batch that holds offset is the next one.
func (p *places) offset(seg *segment.Segment, cuts uint64, offset record.Offset) (index.Place, bool) {
	return p.take(func(k place) bool { return k.seg == seg && k.cuts == cuts && k.at.Offset == offset })
}

// entry returns where entry n begins in seg.
func (p *places) entry(seg *segment.Segment, cuts uint64, n record.EntryNumber) (index.Place, bool) {
	return p.take(func(k place) bool { return k.seg == seg && k.cuts == cuts && k.at.Entry == n })
}

func (p *places) take(is func(place) bool) (index.Place, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.known {
		if is(p.known[i]) {
			p.next = i // its reader moves on
			return p.known[i].at, true
		}
	}
	return index.Place{}, false
}

func (p *places) put(seg *segment.Segment, cuts uint64, at index.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[p.next] = place{seg: seg, cuts: cuts, at: at}
	p.next = (p.next + 1) % len(p.known)
}
