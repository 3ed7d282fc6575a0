package replica

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// brokenStore fails at the n-th write, and keeps what was written before.
type brokenStore struct {
	*raft.InmemStore
	left int
}

var errBroken = errors.New("the disk is gone")

func (b *brokenStore) Set(k, v []byte) error {
	if b.left--; b.left < 0 {
		return errBroken
	}
	return b.InmemStore.Set(k, v)
}

func (b *brokenStore) SetUint64(k []byte, v uint64) error {
	if b.left--; b.left < 0 {
		return errBroken
	}
	return b.InmemStore.SetUint64(k, v)
}

// A voter that crashes between the two halves of a vote must come back with the
// old vote as a whole, not with its candidate in the new term.
func TestVoteIsWrittenAsOneValue(t *testing.T) {
	for writes := range 3 {
		store := &brokenStore{InmemStore: raft.NewInmemStore(), left: 100}
		g := &groupStable{store: store, prefix: "g1"}
		require.NoError(t, g.SetUint64([]byte(keyVoteTerm), 5))
		require.NoError(t, g.Set([]byte(keyVoteCandidate), []byte("a")))

		store.left = writes
		err := errors.Join(
			g.SetUint64([]byte(keyVoteTerm), 6),
			g.Set([]byte(keyVoteCandidate), []byte("b")))

		again := &groupStable{store: store, prefix: "g1"} // the process comes back
		term, errTerm := again.GetUint64([]byte(keyVoteTerm))
		candidate, errCandidate := again.Get([]byte(keyVoteCandidate))
		require.NoError(t, errors.Join(errTerm, errCandidate))
		if err != nil {
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, uint64(5), term)
			require.Equal(t, "a", string(candidate))
		} else {
			require.Equal(t, uint64(6), term)
			require.Equal(t, "b", string(candidate))
		}
	}
}

func TestGroupsShareOneVoteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "votes.db")
	s, err := OpenStable(path)
	require.NoError(t, err)
	a, b := &groupStable{store: s.store, prefix: "a"}, &groupStable{store: s.store, prefix: "b"}
	require.NoError(t, a.SetUint64([]byte(keyTerm), 3))
	require.NoError(t, b.SetUint64([]byte(keyTerm), 8))
	require.NoError(t, s.Close())

	s, err = OpenStable(path)
	require.NoError(t, err)
	defer s.Close()
	a, b = &groupStable{store: s.store, prefix: "a"}, &groupStable{store: s.store, prefix: "b"}
	term, err := a.GetUint64([]byte(keyTerm))
	require.NoError(t, err)
	require.Equal(t, uint64(3), term)
	term, err = b.GetUint64([]byte(keyTerm))
	require.NoError(t, err)
	require.Equal(t, uint64(8), term)

	none, err := a.Get([]byte(keyVoteCandidate))
	require.NoError(t, err)
	require.Nil(t, none)
	term, err = a.GetUint64([]byte(keyVoteTerm))
	require.NoError(t, err)
	require.Zero(t, term)
}
