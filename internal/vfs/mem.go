package vfs

import (
	"io/fs"
	"math/rand/v2"
	"path"
	"strconv"
	"sync"
	"syscall"
)

// Mem is a file system in memory: a store for a node without a disk, and the
// disk that a test can crash, fill and break. Its faults are in fault.go, what
// a crash leaves in reboot.go.
type Mem struct {
	// mu guards the directories. Calls on files hold it for reading, so that
	// Reboot, which holds it for writing, waits for those under way. A file's
	// own lock is taken inside it.
	mu   sync.RWMutex
	root *directory
	torn *tornWrite // the write that was the crash point; set by that call alone

	run    string // see Boot
	faults faults
	space  space
}

// NewMem returns an empty file system. It needs no Close.
func NewMem() *Mem {
	return &Mem{
		root:   newDirectory(),
		run:    strconv.FormatUint(rand.Uint64(), 16),
		faults: faults{crashIn: -1, failIn: -1},
		space:  space{capacity: Unlimited},
	}
}

// change runs a mutating call on directories: do, unless it fails before. At the
// crash point do makes the change too; Reboot decides what is left of it.
func (m *Mem) change(op Op, name string, do func(crash bool) error) error {
	asked := m.faults.ask(op, name)
	m.mu.Lock()
	defer m.mu.Unlock()
	crash, err := m.faults.admit(asked)
	if err == nil {
		err = do(crash)
	}
	if crash {
		err = ErrCrashed
	}
	return pathError(op, name, err)
}

// look runs a call that only reads directories.
func (m *Mem) look(op Op, name string, do func() error) error {
	if err := m.faults.ask(op, name); err != nil {
		return pathError(op, name, err)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return pathError(op, name, do())
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	f := &file{opens: 1}
	if err := m.change(OpCreate, name, func(bool) error { return m.add(name, f) }); err != nil {
		return nil, err
	}
	return &memFile{m: m, f: f, name: name}, nil
}

func (m *Mem) add(name string, n node) error {
	d, base, err := m.root.parent(name)
	if err != nil {
		return err
	}
	if _, ok := d.names[base]; ok {
		return fs.ErrExist
	}
	d.do(change{name: base, node: n})
	return nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) {
	h := &memFile{m: m, name: name}
	err := m.look(OpOpen, name, func() (err error) {
		if h.f, err = m.root.findFile(name); err == nil {
			h.f.open()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// ReadFile implements FS.
func (m *Mem) ReadFile(name string) ([]byte, error) {
	var b []byte
	err := m.look(OpReadFile, name, func() error {
		f, err := m.root.findFile(name)
		if err != nil {
			return err
		}
		b = f.bytes()
		return nil
	})
	return b, err
}

// Rename implements FS.
func (m *Mem) Rename(oldname, newname string) error {
	return m.change(OpRename, oldname, func(bool) error {
		if path.Dir(path.Clean("/"+oldname)) != path.Dir(path.Clean("/"+newname)) {
			return errOtherDir
		}
		d, from, err := m.root.parent(oldname)
		if err != nil {
			return err
		}
		_, to, err := m.root.parent(newname)
		if err != nil {
			return err
		}
		n, ok := d.names[from]
		if !ok {
			return fs.ErrNotExist
		}
		switch target := d.names[to].(type) {
		case *directory:
			return fs.ErrExist
		case *file:
			if _, ok := n.(*directory); ok {
				return syscall.ENOTDIR
			}
			if target == n {
				return nil
			}
			m.unlink(target)
		}
		d.do(change{gone: from, name: to, node: n})
		return nil
	})
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	return m.change(OpRemove, name, func(bool) error {
		d, base, err := m.root.parent(name)
		if err != nil {
			return err
		}
		switch n := d.names[base].(type) {
		case nil:
			return fs.ErrNotExist
		case *directory:
			if len(n.names) > 0 {
				return errNotEmpty
			}
		case *file:
			m.unlink(n)
		}
		d.do(change{gone: base})
		return nil
	})
}

// unlink frees the space of a file without a name, unless it is open.
func (m *Mem) unlink(f *file) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unlinked = true
	if f.opens == 0 {
		m.space.release(f.content.size)
	}
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string) error {
	return m.change(OpMkdir, name, func(crash bool) error {
		d := m.root
		for _, part := range split(name) {
			switch n := d.names[part].(type) {
			case *file:
				return syscall.ENOTDIR
			case *directory:
				d = n
			case nil:
				made := newDirectory()
				d.do(change{name: part, node: made})
				if !crash { // else it is one of the changes that may be lost
					d.sync()
				}
				d = made
			}
		}
		return nil
	})
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	var names []string
	err := m.look(OpList, dir, func() error {
		d, err := m.root.findDirectory(dir)
		if err == nil {
			names = d.list()
		}
		return err
	})
	return names, err
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	return m.change(OpSyncDir, dir, func(crash bool) error {
		d, err := m.root.findDirectory(dir)
		if err == nil && !crash {
			d.sync()
		}
		return err
	})
}

// pathError names the path in err, as package os does.
func pathError(op Op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op.String(), Path: name, Err: err}
}
