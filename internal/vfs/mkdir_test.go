package vfs

import (
	"fmt"
	"io/fs"
	"path"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeDirs fails its n-th call, and knows which names are durable.
type fakeDirs struct {
	made, durable map[string]bool
	n             int
	err           error
	stopped       bool // all that follow fail too: the process has ended
}

func (d *fakeDirs) call(last bool) error {
	if d.n--; d.n == -1 || d.n < 0 && last {
		return d.err
	}
	return nil
}

func (d *fakeDirs) isDir(name string) (bool, error) {
	return d.made[name] || name == "/", d.call(d.stopped)
}

func (d *fakeDirs) mkdir(name string) error {
	if err := d.call(d.stopped); err != nil {
		return err
	}
	if d.made[name] {
		return fs.ErrExist
	}
	d.made[name] = true
	return nil
}

func (d *fakeDirs) syncDir(name string) error {
	if err := d.call(d.stopped); err != nil {
		return err
	}
	for made := range d.made {
		if path.Dir(made) == name {
			d.durable[made] = true
		}
	}
	return nil
}

// TestMkdirAllIsDurableWhateverCameBefore lets each call of a first MkdirAll
// fail, alone or with all that follow. When a second one returns, every name is durable.
func TestMkdirAllIsDurableWhateverCameBefore(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		for point := 0; ; point++ {
			d := &fakeDirs{made: map[string]bool{}, durable: map[string]bool{}, n: point, err: syscall.EIO, stopped: stopped}
			err := mkdirAll(d, "/a/b/c")
			if d.n >= 0 {
				require.NoError(t, err)
				require.Equal(t, 10, point, "isDir of four, mkdir and sync of three")
				break
			}
			msg := fmt.Sprintf("call %d, stopped %v", point, stopped)
			require.ErrorIs(t, err, syscall.EIO, msg)
			d.n = 1 << 30
			require.NoError(t, mkdirAll(d, "/a/b/c"), msg)
			require.Equal(t, map[string]bool{"/a": true, "/a/b": true, "/a/b/c": true}, d.durable, msg)
		}
	}
}

func TestMkdirAllNeedsNoLeaveToSyncWhatIsThere(t *testing.T) {
	d := &fakeDirs{made: map[string]bool{"/a": true}, durable: map[string]bool{}, n: 1, err: fs.ErrPermission}
	require.NoError(t, mkdirAll(d, "/a"))
	require.Empty(t, d.durable)
}
