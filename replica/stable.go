package replica

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// Stable holds the terms and votes of all groups of one node, in one file. Its
// methods may be called at once.
type Stable struct {
	store raft.StableStore
	close func() error
}

// OpenStable opens or makes the file, one of raft-boltdb. Every write to it is
// synced before it returns; those that come at once share a sync.
func OpenStable(path string) (*Stable, error) {
	v, err := openVotes(path, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("open votes %s: %w", path, err)
	}
	return &Stable{store: v, close: v.db.Close}, nil
}

// NewMemoryStable keeps the votes in memory, for nodes whose logs are there too.
func NewMemoryStable() *Stable {
	return &Stable{store: raft.NewInmemStore(), close: func() error { return nil }}
}

// Close closes the file. All replicas must be closed before.
func (s *Stable) Close() error { return s.close() }

// Keys that hashicorp/raft uses.
const (
	keyTerm          = "CurrentTerm"
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
)

// groupStable is one group's part of a Stable. Raft writes term and candidate
// of a vote one after the other; a crash between the two would leave a vote
// for the old candidate in the new term, and a candidate with an empty log
// could win. So the term is only remembered until the candidate comes, and both
// are written as one value.
//
// Raft panics when a term cannot be written. failed is called before and does
// not return in that case.
type groupStable struct {
	store  raft.StableStore
	prefix string
	failed func(error)

	mu       sync.Mutex
	voteTerm uint64 // remembered, not written yet
}

func (g *groupStable) key(k string) []byte { return []byte(g.prefix + k) }

// Set implements raft.StableStore.
func (g *groupStable) Set(key, val []byte) error {
	if string(key) == keyVoteCandidate {
		g.mu.Lock()
		val = append(binary.BigEndian.AppendUint64(nil, g.voteTerm), val...)
		g.mu.Unlock()
	}
	if err := g.store.Set(g.key(string(key)), val); err != nil {
		return fmt.Errorf("write vote: %w", err)
	}
	return nil
}

// Get implements raft.StableStore. A missing key is nil, without an error.
func (g *groupStable) Get(key []byte) ([]byte, error) {
	val, err := g.store.Get(g.key(string(key)))
	if err != nil {
		if err.Error() == "not found" { // raft and both stores agree on this text
			return nil, nil
		}
		return nil, err
	}
	if string(key) == keyVoteCandidate {
		if len(val) < 8 {
			return nil, fmt.Errorf("vote of %d bytes is shorter than its term", len(val))
		}
		val = val[8:]
	}
	return val, nil
}

// mark sets a value of ours.
func (g *groupStable) mark(key string, val uint64) error {
	if err := g.store.SetUint64(g.key(key), val); err != nil {
		return fmt.Errorf("write mark: %w", err)
	}
	return nil
}

// SetUint64 implements raft.StableStore.
func (g *groupStable) SetUint64(key []byte, val uint64) error {
	if string(key) == keyVoteTerm {
		g.mu.Lock()
		g.voteTerm = val
		g.mu.Unlock()
		return nil
	}
	if old, err := g.store.GetUint64(g.key(string(key))); err == nil && old == val {
		return nil // Raft writes the term it has just read, whenever it starts
	}
	if err := g.store.SetUint64(g.key(string(key)), val); err != nil {
		g.failed(fmt.Errorf("write term: %w", err))
		return err
	}
	return nil
}

// GetUint64 implements raft.StableStore. A missing key is zero, without an error.
func (g *groupStable) GetUint64(key []byte) (uint64, error) {
	if string(key) == keyVoteTerm {
		val, err := g.store.Get(g.key(keyVoteCandidate))
		if err == nil && len(val) >= 8 {
			return binary.BigEndian.Uint64(val), nil
		}
		if err != nil && err.Error() != "not found" {
			return 0, err
		}
		return 0, nil
	}
	val, err := g.store.GetUint64(g.key(string(key)))
	if err != nil && err.Error() == "not found" {
		return 0, nil
	}
	return val, err
}
