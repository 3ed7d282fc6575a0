package vfs_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

const lockEnv = "QUORUMLOG_TEST_LOCK"

// TestHelperHoldLock is the other process of the test below: it holds the lock
// until its standard input ends, and does not close it.
func TestHelperHoldLock(t *testing.T) {
	name := os.Getenv(lockEnv)
	if name == "" {
		t.Skip("run by another test")
	}
	l, err := vfs.OS.Lock(name, "the other process")
	require.NoError(t, err)
	defer runtime.KeepAlive(l)
	fmt.Println("locked")
	_, err = io.Copy(io.Discard, os.Stdin)
	require.NoError(t, err)
}

func TestALockOfAnotherProcessEndsWithIt(t *testing.T) {
	name := filepath.ToSlash(filepath.Join(t.TempDir(), "LOCK"))
	other := exec.Command(os.Args[0], "-test.run=^TestHelperHoldLock$")
	other.Env = append(os.Environ(), lockEnv+"="+name)
	stdin, err := other.StdinPipe()
	require.NoError(t, err)
	stdout, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	said, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", said)

	_, err = vfs.OS.Lock(name, "this process")
	var locked *vfs.LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, "the other process", locked.Owner)

	require.NoError(t, stdin.Close())
	require.NoError(t, other.Wait())
	l, err := vfs.OS.Lock(name, "me")
	require.NoError(t, err)
	require.Equal(t, "me", content(t, vfs.OS, name))
	require.NoError(t, l.Close())
}

func TestAnUnwritableDirectoryIsErrPermission(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("needs a user that permissions bind")
	}
	dir := filepath.Join(t.TempDir(), "sealed")
	require.NoError(t, os.Mkdir(dir, 0o500))
	_, createErr := vfs.OS.Create(dir + "/a")
	_, lockErr := vfs.OS.Lock(dir+"/LOCK", "me")
	for _, err := range []error{createErr, lockErr, vfs.OS.MkdirAll(dir + "/sub")} {
		require.True(t, errors.Is(err, fs.ErrPermission), err)
	}
}
