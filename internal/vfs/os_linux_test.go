package vfs

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// disk takes what a fake pwritev writes, so many bytes a call.
type disk struct {
	got   []byte
	takes []int // per call; the last one for all that follow
	calls int
}

func (d *disk) pwritev(bufs [][]byte, off int64) (int, error) {
	take := d.takes[min(d.calls, len(d.takes)-1)]
	d.calls++
	if len(bufs) > iovMax {
		return 0, unix.EINVAL
	}
	if off != int64(len(d.got)) {
		return 0, errors.New("not where the last write ended")
	}
	n := 0
	for _, b := range bufs {
		b = b[:min(len(b), take-n)]
		d.got, n = append(d.got, b...), n+len(b)
	}
	return n, nil
}

func TestShortWritesAreGoneOnWith(t *testing.T) {
	var (
		bufs [][]byte
		want []byte
	)
	for i := range 2500 {
		b := make([]byte, i%7)
		for j := range b {
			b[j] = byte(i + j)
		}
		bufs, want = append(bufs, b), append(want, b...)
	}
	for _, takes := range [][]int{{1 << 30}, {1}, {3, 1 << 30}, {7, 6, 5, 1000}} {
		d := &disk{takes: takes}
		n, err := writeAll(bufs, 0, d.pwritev)
		require.NoError(t, err, takes)
		require.EqualValues(t, len(want), n, takes)
		require.Equal(t, want, d.got, takes)
	}
	require.Len(t, bufs[13], 6, "the caller's buffers must stay as they are")
}

func TestAWriteThatTakesNothingEnds(t *testing.T) {
	n, err := writeAll([][]byte{{1, 2}, {3}}, 0, (&disk{takes: []int{2, 0}}).pwritev)
	require.ErrorIs(t, err, io.ErrShortWrite)
	require.EqualValues(t, 2, n)
}

func TestAnErrorAfterAShortWriteSaysHowMuchIsWritten(t *testing.T) {
	d := &disk{takes: []int{2}}
	calls := 0
	n, err := writeAll([][]byte{{1, 2, 3, 4}}, 0, func(bufs [][]byte, off int64) (int, error) {
		switch calls++; calls {
		case 2:
			return -1, unix.EINTR // asked again
		case 4:
			return -1, unix.ENOSPC
		}
		d.takes = []int{1}
		return d.pwritev(bufs, off)
	})
	require.ErrorIs(t, err, ErrNoSpace)
	require.EqualValues(t, 2, n)
	require.Equal(t, []byte{1, 2}, d.got)
}

func TestAUsedUpQuotaIsNoSpaceToo(t *testing.T) {
	err := errNoSpace(unix.EDQUOT)
	require.ErrorIs(t, err, ErrNoSpace)
	require.ErrorIs(t, err, unix.EDQUOT)
	require.NotErrorIs(t, errNoSpace(unix.EIO), ErrNoSpace)
	require.NoError(t, errNoSpace(nil))
}
