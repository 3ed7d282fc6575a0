package segment

import "context"

// Rewrite writes what the file holds from the end of x to that of y, which
// continues it, once more, as it is; Sync then makes it durable, which without
// that it might not: after a failed sync the system may take pages for written
// that are on no disk. If x is empty, that goes for the file's header too. What is
// written has been checked at the same time: a page may also have been forgotten
// since y was scanned, which is a *CorruptError.
func (s *Segment) Rewrite(ctx context.Context, x, y Extent) error {
	w := s.scanner(x.Size, y.Size, nil)
	start, buf := x.Size, make([]byte, 0, min(2*scanChunk, y.Size))
	if x.Size == HeaderSize {
		start, buf = 0, append(buf, s.Encode()...)
	}
	for x.Size < y.Size {
		f, b, reason, err := w.entry(ctx, x)
		if err != nil {
			return err
		}
		if reason != "" {
			return s.damage(y, x.end(), reason)
		}
		if len(buf) > 0 && len(buf)+len(b) > scanChunk {
			if _, err := s.file.WriteAt(buf, start); err != nil {
				return err
			}
			start, buf = x.Size, buf[:0]
		}
		buf = append(buf, b...)
		e := f.entry(b[frameSize:])
		x.Size, x.NextEntry, x.NextOffset, x.LastTerm = x.Size+f.size(), x.NextEntry+1, e.Next(), f.term
	}
	_, err := s.file.WriteAt(buf, start)
	return err
}
