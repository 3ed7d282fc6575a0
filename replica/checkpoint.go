package replica

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

// The file "checkpoint" beside the segments holds the state of the partition at
// one committed entry, so that a restart replays only what came later. It is
// derived: without it the whole log is replayed. It is replaced by writing
// "checkpoint.tmp", syncing it, renaming it and syncing the directory, after the
// log has been synced up to its entry. Integers are big-endian.
//
//	magic "QLOGCKPT" | version u32 = 1 | meta length u32 | meta (JSON) | state | crc-32c u32 of all before
const (
	checkpointName    = "checkpoint"
	checkpointMagic   = "QLOGCKPT"
	checkpointVersion = 1
	checkpointHeader  = len(checkpointMagic) + 4 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkpoints is the raft.SnapshotStore. It holds one checkpoint, for this
// node's restart: Raft asks for it once, while it starts. Later only a leader
// asks, to send a follower what its log no longer holds. A checkpoint would be
// wrong for that, since the follower would miss the records before it, so then
// the answer is an anchor, made from the checkpoint and the log's first entry.
type checkpoints struct {
	fs  vfs.FS
	dir string
	log *log.Log

	mu      sync.Mutex
	meta    *raft.SnapshotMeta // nil when there is none
	state   []byte
	members uint64 // the entry of the membership that the file of that name holds, 0 for none
	booting bool   // Raft has not started yet
}

// openCheckpoints reads what is there. A damaged file is as good as none, and
// why says so.
func openCheckpoints(fsys vfs.FS, dir string, l *log.Log) (c *checkpoints, why error) {
	c = &checkpoints{fs: fsys, dir: dir, log: l}
	b, err := fsys.ReadFile(path.Join(dir, checkpointName))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	meta, state, err := decodeCheckpoint(b)
	if err != nil {
		return c, fmt.Errorf("%s: %w", path.Join(dir, checkpointName), err)
	}
	c.meta, c.state = meta, state
	return c, nil
}

func decodeCheckpoint(b []byte) (*raft.SnapshotMeta, []byte, error) {
	if len(b) < checkpointHeader+4 || string(b[:len(checkpointMagic)]) != checkpointMagic {
		return nil, nil, fmt.Errorf("%w: not a checkpoint", record.ErrCorrupt)
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, nil, fmt.Errorf("%w: checksum does not match", record.ErrCorrupt)
	}
	d := decoder{b: body[len(checkpointMagic):]}
	if v := d.u32(); v != checkpointVersion {
		return nil, nil, fmt.Errorf("checkpoint has version %d, this build knows %d", v, checkpointVersion)
	}
	text := d.take(int(d.u32()))
	if d.err != nil {
		return nil, nil, d.err
	}
	meta := new(raft.SnapshotMeta)
	if err := json.Unmarshal(text, meta); err != nil {
		return nil, nil, err
	}
	return meta, d.b, nil
}

func encodeCheckpoint(meta *raft.SnapshotMeta, state []byte) ([]byte, error) {
	text, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	b := append([]byte(nil), checkpointMagic...)
	b = binary.BigEndian.AppendUint32(b, checkpointVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	b = append(append(b, text...), state...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// replay stands in for a checkpoint that is missing or of no use, and returns
// the state before the log's first entry. If the log has been trimmed Raft must
// be told what came before: the membership is in a file of its own.
func (c *checkpoints) replay(founders raft.Configuration, logger *slog.Logger) state {
	b := c.log.Bounds()
	s := state{entry: uint64(b.First) - 1, term: b.PrevTerm, high: b.Start, folded: b.Start, start: b.Start, producers: producers{}, transactions: newTransactions()}
	c.meta, c.state = nil, nil
	if s.entry > 0 {
		c.meta = &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, ID: "replay", Index: s.entry, Term: s.term}
		c.meta.Configuration, c.meta.ConfigurationIndex = c.lastMembers(s.entry, founders, logger)
		c.state = s.encode()
	}
	return s
}

// starting tells whether Raft is about to start, or has read what it needs.
func (c *checkpoints) starting(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.booting = is
}

// entry returns the entry of the checkpoint, 0 when there is none.
func (c *checkpoints) entry() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.meta == nil {
		return 0
	}
	return c.meta.Index
}

// List implements raft.SnapshotStore.
func (c *checkpoints) List() ([]*raft.SnapshotMeta, error) {
	meta, _, err := c.newest()
	if meta == nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{meta}, err
}

// Open implements raft.SnapshotStore: the checkpoint, which has just been
// received, or an anchor, which may be newer than the one that was listed.
func (c *checkpoints) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, state := c.stored()
	if meta == nil || meta.ID != id {
		var err error
		if meta, state, err = c.newest(); err != nil {
			return nil, nil, err
		}
	}
	if meta == nil {
		return nil, nil, fmt.Errorf("there is no snapshot %q", id)
	}
	return meta, io.NopCloser(bytes.NewReader(state)), nil
}

func (c *checkpoints) stored() (*raft.SnapshotMeta, []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.meta, c.state
}

// newest returns the checkpoint while Raft starts, an anchor later.
func (c *checkpoints) newest() (*raft.SnapshotMeta, []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.log.Bounds()
	switch {
	case c.meta == nil || c.booting:
		return c.meta, c.state, nil
	case b.First <= 2: // a follower can be sent every entry
		return nil, nil, nil
	}
	s, err := decodeState(c.state)
	if err != nil {
		return nil, nil, err
	}
	s.anchor, s.entry, s.term, s.high = true, uint64(b.First)-1, b.PrevTerm, b.Start
	meta := *c.meta
	meta.Index, meta.Term, meta.ID = s.entry, s.term, fmt.Sprintf("anchor-%d", s.entry)
	text := s.encode()
	meta.Size = int64(len(text))
	return &meta, text, nil
}

// Create implements raft.SnapshotStore.
func (c *checkpoints) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &sink{store: c, meta: &raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d", term, index), Index: index, Term: term,
		Configuration: conf, ConfigurationIndex: confIndex,
	}}, nil
}

// sink collects one checkpoint and writes it when closed.
type sink struct {
	store *checkpoints
	meta  *raft.SnapshotMeta
	bytes.Buffer
	done bool
}

// ID implements raft.SnapshotSink.
func (s *sink) ID() string { return s.meta.ID }

// Cancel implements raft.SnapshotSink.
func (s *sink) Cancel() error {
	s.done = true
	return nil
}

// Close implements raft.SnapshotSink.
func (s *sink) Close() error {
	if s.done {
		return nil
	}
	s.done = true
	s.meta.Size = int64(s.Len())
	b, err := encodeCheckpoint(s.meta, s.Bytes())
	if err != nil {
		return err
	}
	c := s.store
	if err := c.saveMembers(s.meta); err != nil { // before: what the checkpoint covers may be trimmed
		return err
	}
	if err := vfs.WriteFile(c.fs, path.Join(c.dir, checkpointName), b); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meta, c.state, c.members = s.meta, s.Bytes(), s.meta.ConfigurationIndex
	return nil
}
