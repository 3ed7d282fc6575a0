package vfs

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
)

// directory is one directory of a Mem. Mem.mu guards it.
type directory struct {
	names   map[string]node
	synced  map[string]node // names at the last sync
	changes []change        // what led from synced to names
}

// node is a *directory or a *file.
type node any

func newDirectory() *directory {
	return &directory{names: make(map[string]node), synced: make(map[string]node)}
}

// change is one step in the life of a directory: a create sets name, a remove
// clears gone, a rename does both and is one step all the same.
type change struct {
	gone, name string
	node       node
}

func (c change) apply(names map[string]node) {
	if c.gone != "" {
		delete(names, c.gone)
	}
	if c.name != "" {
		names[c.name] = c.node
	}
}

func (d *directory) do(c change) {
	c.apply(d.names)
	d.changes = append(d.changes, c)
}

func (d *directory) sync() {
	for _, c := range d.changes {
		c.apply(d.synced)
	}
	d.changes = nil
}

// after returns the names of which the first n changes are durable.
func (d *directory) after(n int) map[string]node {
	names := maps.Clone(d.synced)
	for _, c := range d.changes[:n] {
		c.apply(names)
	}
	return names
}

func (d *directory) list() []string { return slices.Sorted(maps.Keys(d.names)) }

// split returns the parts of a name; none for the root. A Mem has no working
// directory, so a relative name begins at the root.
func split(name string) []string {
	return strings.FieldsFunc(path.Clean("/"+name), func(r rune) bool { return r == '/' })
}

// find returns what a name names.
func (d *directory) find(name string) (node, error) {
	var n node = d
	for _, part := range split(name) {
		in, ok := n.(*directory)
		if !ok {
			return nil, syscall.ENOTDIR
		}
		if n, ok = in.names[part]; !ok {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// parent returns the directory that a name is in, and its last part.
func (d *directory) parent(name string) (*directory, string, error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", fs.ErrInvalid
	}
	base := parts[len(parts)-1]
	in, err := d.findDirectory(strings.Join(parts[:len(parts)-1], "/"))
	return in, base, err
}

func (d *directory) findDirectory(name string) (*directory, error) {
	n, err := d.find(name)
	if err != nil {
		return nil, err
	}
	in, ok := n.(*directory)
	if !ok {
		return nil, syscall.ENOTDIR
	}
	return in, nil
}

func (d *directory) findFile(name string) (*file, error) {
	n, err := d.find(name)
	if err != nil {
		return nil, err
	}
	f, ok := n.(*file)
	if !ok {
		return nil, syscall.EISDIR
	}
	return f, nil
}
