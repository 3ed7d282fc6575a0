package quorumlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/replica"
)

// home is a node's directory:
//
//	LOCK        held while the node is open; says who holds it
//	node.json   format version and the node's id
//	votes.db    terms and votes of all Raft groups
//	partitions/ one directory a partition
type home struct {
	fs      vfs.FS
	disk    io.Closer // what fs stands on; nil in memory
	dir     string
	lock    io.Closer
	stable  *replica.Stable
	flusher *log.Flusher // of all partitions
}

// DirError says why a directory cannot hold a node's data.
type DirError struct {
	Dir string
	Err error
}

// Unwrap returns the cause.
func (e *DirError) Unwrap() error { return e.Err }

func (e *DirError) Error() string {
	switch {
	case errors.Is(e.Err, vfs.ErrLocked):
		return fmt.Sprintf("directory %s is open already; close that node or use another directory: %v", e.Dir, e.Err)
	case errors.Is(e.Err, fs.ErrPermission):
		return fmt.Sprintf("directory %s cannot be written; give this process the right to, or use another directory: %v", e.Dir, e.Err)
	}
	return fmt.Sprintf("directory %s: %v", e.Dir, e.Err)
}

// identity is what node.json holds.
type identity struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
}

const homeVersion = 1

// openHome opens dir of fsys; openStable opens the votes, by their path.
func openHome(fsys vfs.FS, dir, id string, openStable func(string) (*replica.Stable, error)) (*home, error) {
	if dir == "" {
		return nil, fmt.Errorf("quorumlog: %w: the directory has no name", ErrInvalid)
	}
	abs, err := filepath.Abs(dir) // files are opened again by name, wherever the program is by then
	if err != nil {
		return nil, &DirError{Dir: dir, Err: err}
	}
	h := &home{fs: fsys, dir: filepath.ToSlash(abs), flusher: log.NewFlusher()}
	if err := h.open(id, openStable); err != nil {
		return nil, errors.Join(&DirError{Dir: dir, Err: err}, h.Close())
	}
	return h, nil
}

func (h *home) open(id string, openStable func(string) (*replica.Stable, error)) (err error) {
	if err := h.fs.MkdirAll(h.dir); err != nil {
		return err
	}
	owner := fmt.Sprintf("node %q, process %d, since %s", id, os.Getpid(), time.Now().Format(time.RFC3339))
	if h.lock, err = h.fs.Lock(path.Join(h.dir, "LOCK"), owner); err != nil {
		return err
	}
	if err := h.identify(id); err != nil {
		return err
	}
	h.stable, err = openStable(path.Join(h.dir, "votes.db"))
	return err
}

// identify refuses a directory of another node: its votes are not this node's.
func (h *home) identify(id string) error {
	name := path.Join(h.dir, "node.json")
	b, err := h.fs.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		if b, err = json.Marshal(identity{Version: homeVersion, ID: id}); err != nil {
			return err
		}
		return vfs.WriteFile(h.fs, name, append(b, '\n'))
	}
	if err != nil {
		return err
	}
	var have identity
	switch err := json.Unmarshal(b, &have); {
	case err != nil:
		return fmt.Errorf("%s: %w: %v", name, ErrCorrupt, err)
	case have.Version != homeVersion:
		return fmt.Errorf("%s has format version %d, this build knows %d: use the version of quorumlog that wrote it", name, have.Version, homeVersion)
	case have.ID != id:
		return fmt.Errorf("%w: it belongs to node %q, not to %q: set Config.ID or use another directory", ErrInvalid, have.ID, id)
	}
	return nil
}

// Close gives the directory free. Everything in it must be closed before.
func (h *home) Close() error {
	h.flusher.Close()
	var errs []error
	if h.stable != nil {
		errs = append(errs, h.stable.Close())
	}
	if h.lock != nil {
		errs = append(errs, h.lock.Close())
	}
	if h.disk != nil {
		errs = append(errs, h.disk.Close())
	}
	h.stable, h.lock, h.disk = nil, nil, nil
	return errors.Join(errs...)
}
