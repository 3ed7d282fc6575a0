package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/quorumlog/quorumlog/record"
)

// DeleteTopic removes a topic and its records for good; *record.UnknownTopicError
// if there is none. It returns when that is decided and known here; each node
// deletes its files soon after. Writes, reads and commits that are under way then
// fail with *record.UnknownTopicError. A topic that is made under the same name
// later is another one, and they still do.
func (n *Node) DeleteTopic(ctx context.Context, name string) error {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if isInternal(name) {
		return &InvalidTopicError{Topic: name, Reason: "the cluster needs its own topics; it cannot be deleted"}
	}
	t, err := n.lookUp(ctx, name)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("delete topic %q", name)
	a, err := n.ask(ctx, n.meta, what, request{Op: opDeleteTopic, Name: name, NewID: t.ID})
	if err != nil {
		return err
	}
	return n.learned(ctx, what, a.Upto)
}

// deleteTopic decides that a topic is gone. The id makes every try the same
// request: another topic of the name is not meant.
func (m *metadata) deleteTopic(name string, id record.TopicID) ([]record.Record, error) {
	if t, ok := m.topics[name]; !ok || t.ID != id {
		return nil, nil
	}
	return []record.Record{{Key: []byte(keyTopic + name)}}, nil
}

// gone is the answer to a request about a topic that was deleted, nil for one
// that was not, as far as this node knows.
func (n *Node) gone(id record.TopicID) (err error) {
	n.fold.View(func() {
		if name, ok := n.metadata.deleted[id]; ok {
			err = &record.UnknownTopicError{Topic: name, Partition: -1}
		}
	})
	return err
}

// discarded ends the name of a directory that is being deleted. No partition's
// directory does.
const discarded = ".deleted"

// discard deletes a partition's directory. It is renamed first, so that a crash
// leaves it whole or as something to delete.
func (n *Node) discard(dir string) error {
	parent := path.Join(n.cfg.Dir, "partitions")
	name, trash := path.Join(parent, dir), path.Join(parent, strings.TrimSuffix(dir, discarded)+discarded)
	if name != trash {
		if err := n.removeAll(trash); err != nil { // of an earlier time
			return err
		}
		if err := n.cfg.FS.Rename(name, trash); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if err := n.cfg.FS.SyncDir(parent); err != nil {
			return err
		}
	}
	return n.removeAll(trash)
}

// removeAll removes a directory of files, if it is there.
func (n *Node) removeAll(dir string) error {
	names, err := n.cfg.FS.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := n.cfg.FS.Remove(path.Join(dir, name)); err != nil {
			return err
		}
	}
	return n.cfg.FS.Remove(dir)
}

// sweep deletes the directories of partitions that have gone from this node
// while it was down, or in the middle of deleting them. It must know everything
// that was decided before it is called, and be the only one to make directories.
// What it has never heard of it does not touch.
func (n *Node) sweep() error {
	found, err := n.cfg.FS.List(path.Join(n.cfg.Dir, "partitions"))
	if err != nil {
		return err
	}
	elsewhere := map[string]bool{}
	for _, p := range n.all() {
		if rep, _, _ := p.state(); rep == nil && p != n.meta && !slices.Contains(p.assigned().Replicas, n.cfg.ID) {
			elsewhere[partitionDir(p)] = true
		}
	}
	var deleted []string
	n.fold.View(func() {
		for id, topic := range n.metadata.deleted {
			deleted = append(deleted, topicDir(topic, id))
		}
	})
	var errs []error
	for _, name := range found {
		ofDeleted := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if !elsewhere[name] && !strings.HasSuffix(name, discarded) && !slices.ContainsFunc(deleted, ofDeleted) {
			continue
		}
		n.cfg.Logger.Info("directory of a partition that is not on this node any more is deleted", "node", n.cfg.ID, "directory", name)
		errs = append(errs, n.discard(name))
	}
	return errors.Join(errs...)
}
