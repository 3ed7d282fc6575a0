package log

import "time"

// Progress says how far Open or Verify has come. Both count on their way what is
// appended meanwhile, so the totals may grow.
type Progress struct {
	Segments, TotalSegments int
	Bytes, TotalBytes       int64 // of segment files: what need not be read counts as done
}

// progressEvery is how often progress is told at most: for people to watch, and
// too rarely to cost anything.
const progressEvery = 100 * time.Millisecond

// meter tells progress, at most once every progressEvery and at the end.
type meter struct {
	Progress
	done int64 // in whole segments
	tell func(Progress)
	last time.Time
}

func newMeter(tell func(Progress)) *meter { return &meter{tell: tell, last: time.Now()} }

func (m *meter) read(bytes int64) {
	m.Bytes += bytes
	if m.tell == nil {
		return
	}
	if now := time.Now(); now.Sub(m.last) >= progressEvery {
		m.last = now
		m.tell(m.Progress)
	}
}

// segment is called when one of size bytes is done.
func (m *meter) segment(size int64) {
	m.Segments++
	m.done += size
	m.Bytes = m.done
}

// end is called when all is done.
func (m *meter) end() {
	if m.tell != nil {
		m.tell(m.Progress)
	}
}
