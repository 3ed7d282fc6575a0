package replica

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// TestVotesOfManyGroupsShareASync: as many writes at once as an election of all
// groups makes, each there when it returned, in a file that raft-boltdb reads.
func TestVotesOfManyGroupsShareASync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "votes")
	s, err := OpenStable(path)
	require.NoError(t, err)
	v := s.store.(*votes)
	v.writing <- struct{}{}   // a write takes long
	written := func() int64 { // writes of pages, and two more for each transaction
		stats := v.db.Stats()
		return stats.TxStats.GetWrite()
	}
	before := written()
	const groups = 500
	var g errgroup.Group
	for i := range groups {
		g.Go(func() error {
			key := fmt.Appendf(nil, "group %d", i)
			if err := v.SetUint64(key, uint64(i)); err != nil {
				return err
			}
			if got, err := v.GetUint64(key); err != nil || got != uint64(i) {
				return fmt.Errorf("%s holds %d, %w", key, got, err)
			}
			return nil
		})
	}
	for waiting := 0; waiting < groups; {
		v.mu.Lock()
		if v.next != nil {
			waiting = len(v.next.keys)
		}
		v.mu.Unlock()
		runtime.Gosched()
	}
	<-v.writing
	require.NoError(t, g.Wait())
	require.Less(t, written()-before, int64(groups/2))
	_, err = v.Get([]byte("group x"))
	require.EqualError(t, err, "not found")
	require.NoError(t, s.Close())

	theirs, err := raftboltdb.NewBoltStore(path)
	require.NoError(t, err)
	defer theirs.Close()
	for i := range groups {
		got, err := theirs.Get(fmt.Appendf(nil, "group %d", i))
		require.NoError(t, err)
		require.Equal(t, binary.BigEndian.AppendUint64(nil, uint64(i)), got)
	}
}
