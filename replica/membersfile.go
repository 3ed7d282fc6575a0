package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// The file "members" holds the membership of the newest checkpoint, in the frame
// of a checkpoint without a state. It is written before a checkpoint whose
// membership is another, so before the entry of that membership can be trimmed.
// A damaged checkpoint then costs a replay and nothing else.
const membersName = "members"

// configured returns the entry of the membership as of the checkpoint, 0 when there is none.
func (c *checkpoints) configured() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.meta == nil {
		return 0
	}
	return c.meta.ConfigurationIndex
}

// saveMembers writes the membership of a checkpoint that is about to be written.
func (c *checkpoints) saveMembers(of *raft.SnapshotMeta) error {
	c.mu.Lock()
	same := c.members == of.ConfigurationIndex
	c.mu.Unlock()
	if same {
		return nil
	}
	b, err := encodeCheckpoint(&raft.SnapshotMeta{
		Version: of.Version, Configuration: of.Configuration, ConfigurationIndex: of.ConfigurationIndex,
	}, nil)
	if err != nil {
		return err
	}
	return vfs.WriteFile(c.fs, path.Join(c.dir, membersName), b)
}

// lastMembers returns the membership before the log's first entry, which follows
// on before, and its own entry. Without the file it is that of the founders if it
// never changed; nobody can know, so a partition of several does not go by it:
// this replica then waits for a leader that knows it.
func (c *checkpoints) lastMembers(before uint64, founders raft.Configuration, logger *slog.Logger) (raft.Configuration, uint64) {
	b, err := c.fs.ReadFile(path.Join(c.dir, membersName))
	if err == nil {
		var meta *raft.SnapshotMeta
		if meta, _, err = decodeCheckpoint(b); err == nil { // a newer one is in the log too, and wins
			return meta.Configuration, min(meta.ConfigurationIndex, before)
		}
	}
	if len(founders.Servers) == 1 {
		return founders, 1
	}
	if !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: %w", path.Join(c.dir, membersName), err)
	}
	logger.Error("membership lost with the checkpoint; this replica waits for a leader to tell it", "reason", err)
	return raft.Configuration{}, 0
}
