package segment

import (
	"errors"
	"fmt"

	"github.com/quorumlog/quorumlog/index"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

// SaveIndex writes the .index for x, of which all must have been synced. On an
// error there may be the old file, the new one, or none.
func (s *Segment) SaveIndex(x Extent) error {
	s.indexed = max(s.indexed, x.Size)
	return vfs.WriteFile(s.fsys, s.path+IndexSuffix, x.Index.Encode(s.summary(x)))
}

// summary is what the files beside the .log say of it.
func (s *Segment) summary(x Extent) index.Summary {
	return index.Summary{
		LogSum: s.seed, Size: x.Size, NextOffset: x.NextOffset, NextEntry: x.NextEntry, LastTerm: x.LastTerm,
	}
}

// Indexed returns how many bytes of the file the .index speaks of, 0 without one.
func (s *Segment) Indexed() int64 { return s.indexed }

// LoadIndex returns the extent that the .index speaks of, if it is whole, of this
// segment, and speaks of no more than the size bytes that the file has. An error
// says why it cannot be used; the extent comes with it if that is all that is wrong.
func (s *Segment) LoadIndex(size int64) (Extent, error) {
	b, err := s.fsys.ReadFile(s.path + IndexSuffix)
	if err != nil {
		return Extent{}, err
	}
	s.indexed = size // until it is known better: Cut must not trust it
	idx, sum, err := index.Decode(b)
	if err != nil {
		return Extent{}, err
	}
	x := Extent{Size: sum.Size, NextOffset: sum.NextOffset, NextEntry: sum.NextEntry, LastTerm: sum.LastTerm, Index: idx}
	switch {
	case sum.LogSum != s.seed:
		return Extent{}, errors.New("index of another segment")
	case x.Size > size:
		s.indexed = x.Size
		return x, fmt.Errorf("index speaks of %d bytes, there are %d", x.Size, size)
	}
	s.indexed = x.Size
	return x, nil
}

// Fits goes from the last slot of the index to the end of x, and reports
// whether the entries there are what the index says. An error is of the disk.
func (s *Segment) Fits(x Extent) (bool, error) {
	at, ok := x.Index.Last()
	if !ok {
		e := s.Empty()
		return x.end() == e.end() && x.LastTerm == e.LastTerm, nil
	}
	w := s.walker(x)
	defer w.done()
	for {
		f, err := w.header(at)
		if errors.Is(err, record.ErrCorrupt) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		at = f.behind(at)
		if at.Position == x.Size {
			return at.Entry == x.NextEntry && f.term == x.LastTerm, nil
		}
	}
}
