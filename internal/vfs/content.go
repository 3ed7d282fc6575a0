package vfs

import "maps"

const (
	pageSize = 4096
	// maxFileSize keeps the page table of one file below 128 MiB.
	maxFileSize = 1 << 36
)

type page [pageSize]byte

// content is the bytes of one file, and what a crash may leave of them. An
// append costs nothing extra: bytes at or above synced are unsynced by their
// place, and only a change below it keeps the page that was there.
type content struct {
	size  int64
	pages []*page // nil is a page of zeros; bytes from size on are zero

	synced int64         // length at the last sync
	low    int64         // smallest length since then, so low <= synced
	old    map[int]*page // synced content of pages that changed below synced; never written to
	lost   map[int]bool  // pages in old that a failed sync left behind, not written again since
}

// pagesFor returns how many pages hold size bytes.
func pagesFor(size int64) int { return int((size + pageSize - 1) / pageSize) }

// readAt copies what there is of len(p) bytes at off.
func (c *content) readAt(p []byte, off int64) int {
	if off >= c.size {
		return 0
	}
	p = p[:min(int64(len(p)), c.size-off)]
	for n := 0; n < len(p); {
		i, at := int((off+int64(n))/pageSize), int((off+int64(n))%pageSize)
		part := p[n:min(len(p), n+pageSize-at)]
		if c.pages[i] == nil {
			clear(part)
		} else {
			copy(part, c.pages[i][at:])
		}
		n += len(part)
	}
	return len(p)
}

func (c *content) writeAt(p []byte, off int64) {
	c.grow(off + int64(len(p)))
	for len(p) > 0 {
		i, at := int(off/pageSize), int(off%pageSize)
		if off < c.synced {
			c.keepOld(i)
		}
		if c.pages[i] == nil {
			c.pages[i] = new(page)
		}
		n := copy(c.pages[i][at:], p)
		delete(c.lost, i)
		p, off = p[n:], off+int64(n)
	}
}

func (c *content) truncate(size int64) {
	if size >= c.size {
		c.grow(size)
		return
	}
	keep := pagesFor(size)
	for i := int(size / pageSize); i < min(len(c.pages), pagesFor(c.synced)); i++ {
		c.keepOld(i)
	}
	clear(c.pages[keep:])
	c.pages = c.pages[:keep]
	if tail := size % pageSize; tail > 0 && c.pages[keep-1] != nil {
		clear(c.pages[keep-1][tail:])
	}
	maps.DeleteFunc(c.lost, func(i int, _ bool) bool { return i >= keep })
	c.size, c.low = size, min(c.low, size)
}

// sync makes everything durable but what an earlier failed sync lost.
func (c *content) sync() {
	maps.DeleteFunc(c.old, func(i int, _ *page) bool { return !c.lost[i] })
	c.synced, c.low = c.size, c.size
}

// syncFailed marks all unsynced pages as lost.
func (c *content) syncFailed() {
	if c.lost == nil {
		c.lost = make(map[int]bool)
	}
	for i := range c.pages {
		if c.dirty(i) {
			c.keepOld(i)
			c.lost[i] = true
		}
	}
}

// dirty reports whether a crash may take something from page i.
func (c *content) dirty(i int) bool {
	_, changed := c.old[i]
	return changed || int64(i+1)*pageSize > c.low
}

// keepOld remembers the synced content of page i, which is about to change.
func (c *content) keepOld(i int) {
	if _, ok := c.old[i]; ok {
		return
	}
	if c.old == nil {
		c.old = make(map[int]*page)
	}
	c.old[i] = clonePage(c.pages[i], i, c.synced)
}

// grow makes the file at least size bytes long.
func (c *content) grow(size int64) {
	if n := pagesFor(size) - len(c.pages); n > 0 {
		c.pages = append(c.pages, make([]*page, n)...)
	}
	c.size = max(c.size, size)
}

// clonePage copies page number i, and leaves out what lies at or above limit.
func clonePage(p *page, i int, limit int64) *page {
	n := min(limit-int64(i)*pageSize, pageSize)
	if p == nil || n <= 0 {
		return nil
	}
	q := new(page)
	copy(q[:n], p[:n])
	return q
}
