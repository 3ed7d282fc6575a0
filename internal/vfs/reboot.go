package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Reboot returns a file system with what the crash left of m, which it crashes
// if that has not happened. All that was synced is there; the seed decides
// about the rest. Seed 0 loses all of it; seed 1 keeps all, as after the end of
// the process alone; any other seed draws for each directory, file and page.
// The same seed gives the same result, and m can be rebooted again.
func (m *Mem) Reboot(seed uint64) *Mem {
	m.Crash()
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &reboot{torn: m.torn, rest: draw, rng: rand.New(rand.NewPCG(seed, 0))}
	switch seed {
	case 0:
		r.rest = drop
	case 1:
		r.rest = keep
	}
	next := NewMem()
	if r.rest == keep {
		next.run = m.run
	}
	next.root = r.directory(m.root)
	next.space.used, next.space.capacity = r.bytes, m.space.capacity
	return next
}

// verdict is what happens to something that was not synced.
type verdict int

const (
	draw verdict = iota // decide for each part
	keep
	drop
	zero
)

// reboot carries over what survives.
type reboot struct {
	torn  *tornWrite
	rest  verdict // of everything that is not synced
	rng   *rand.Rand
	bytes int64 // that were carried over
}

// pick decides by chance if the decision is still open.
func (r *reboot) pick(v verdict, from ...verdict) verdict {
	if v != draw {
		return v
	}
	return from[r.rng.IntN(len(from))]
}

// prefix says how many of n things in a row survive.
func (r *reboot) prefix(n int) int {
	switch r.rest {
	case keep:
		return n
	case drop:
		return 0
	default:
		return r.rng.IntN(n + 1)
	}
}

func (r *reboot) directory(d *directory) *directory {
	names := d.after(r.prefix(len(d.changes)))
	next := newDirectory()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		switch n := names[name].(type) {
		case *directory:
			next.names[name] = r.directory(n)
		case *file:
			next.names[name] = r.file(n)
		}
	}
	next.synced = maps.Clone(next.names)
	return next
}

func (r *reboot) file(f *file) *file {
	f.mu.RLock()
	defer f.mu.RUnlock()
	c := &f.content
	if r.torn != nil && r.torn.f == f {
		c = c.clone()
		if b := r.torn.data[:r.prefix(len(r.torn.data))]; len(b) > 0 {
			c.writeAt(b, r.torn.off)
		}
	}
	next := &file{content: r.content(c)}
	r.bytes += next.content.size
	return next
}

// content decides about the unsynced pages of a file. Whole files are often
// kept or dropped in one piece, because disks do that too.
func (r *reboot) content(c *content) content {
	all := r.pick(r.rest, keep, drop, draw, draw)
	durable := c.synced // bytes below are as they were synced, or newer
	cut := c.low < c.synced && r.pick(all, keep, drop) == keep
	if cut {
		durable = c.low
	}
	uncut := c.low < c.synced && !cut

	size := durable
	pages := make([]*page, pagesFor(max(c.size, c.synced)))
	for i := range pages {
		var now *page
		if i < len(c.pages) {
			now = c.pages[i]
		}
		if !c.dirty(i) {
			pages[i] = clonePage(now, i, c.size)
			continue
		}
		v := r.pick(all, keep, drop, zero)
		if uncut && int64(i+1)*pageSize > c.low {
			v = drop // what was written behind a truncate is not there without it
		}
		before, changed := c.old[i]
		if !changed {
			before = now
		}
		if v == keep {
			pages[i] = clonePage(now, i, c.size)
		} else {
			pages[i] = clonePage(before, i, durable)
		}
		if v != drop {
			size = max(size, min(c.size, int64(i+1)*pageSize))
		}
	}
	return content{size: size, pages: pages[:pagesFor(size)], synced: size, low: size}
}

// tornWrite is a write that was under way when the crash came.
type tornWrite struct {
	f    *file
	data []byte
	off  int64
}

func newTornWrite(f *file, bufs [][]byte, off int64) *tornWrite {
	if off < 0 || off >= maxFileSize {
		return nil
	}
	data := slices.Concat(bufs...)
	return &tornWrite{f: f, data: data[:min(int64(len(data)), maxFileSize-off)], off: off}
}

// clone copies what a write changes; old pages are never written to.
func (c *content) clone() *content {
	d := *c
	d.pages = make([]*page, len(c.pages))
	for i, p := range c.pages {
		d.pages[i] = clonePage(p, i, c.size)
	}
	d.old, d.lost = maps.Clone(c.old), maps.Clone(c.lost)
	return &d
}
