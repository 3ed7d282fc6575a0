package vfs

import (
	"errors"
	"io"
	"io/fs"
	"sync"
)

// Lock implements FS. The lock ends with its Close or with Reboot.
func (m *Mem) Lock(name, owner string) (io.Closer, error) {
	l := &memLock{m: m}
	err := m.change(OpLock, name, func(bool) (err error) {
		l.f, err = m.root.findFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			l.f = &file{}
			err = m.add(name, l.f)
		}
		if err != nil {
			return err
		}
		if l.f.locked {
			return &LockedError{Name: name, Owner: string(l.f.bytes())}
		}
		if err := l.write(owner); err != nil {
			return err
		}
		l.f.locked = true
		return nil
	})
	if locked := (*LockedError)(nil); errors.As(err, &locked) {
		return nil, locked
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// memLock is a held lock.
type memLock struct {
	m    *Mem
	f    *file
	once sync.Once
}

// write replaces the text of the lock file.
func (l *memLock) write(owner string) error {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	c := &l.f.content
	l.m.space.release(c.size)
	c.truncate(0)
	_, err := l.m.write(c, [][]byte{[]byte(owner)}, 0, nil)
	return err
}

// Close unlocks, and empties the file as OS does.
func (l *memLock) Close() error {
	var err error
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		l.f.locked = false
		if !l.m.Crashed() {
			err = l.write("")
		}
	})
	return err
}
