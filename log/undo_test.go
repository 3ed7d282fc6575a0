package log

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// TestAFailedAppendSaysWhetherAnythingOfItMayBeThere: when what a failed call
// has written can be taken back, nothing of it is in the log and that is the end
// of it. When it cannot, the error must say so.
func TestAFailedAppendSaysWhetherAnythingOfItMayBeThere(t *testing.T) {
	for _, takenBack := range []bool{true, false} {
		disk := vfs.NewMem()
		l := open(t, testConfig(disk))
		entries := newOracle().make(t, testRand(t), 1)
		full := errors.New("no more")
		disk.Fail(func(op vfs.Op, _ string) error {
			switch {
			case op == vfs.OpWrite:
				return &vfs.ShortWrite{N: 100, Err: full}
			case op == vfs.OpTruncate && !takenBack:
				return errors.New("truncate does not work either")
			}
			return nil
		})
		err := l.Append(entries)
		require.ErrorIs(t, err, full)
		require.Equal(t, takenBack, !errors.Is(err, ErrSync), "%v", err)
		disk.Fail(nil)
		require.Equal(t, takenBack, l.Append(entries) == nil)
		require.NoError(t, l.Close())
	}
}
