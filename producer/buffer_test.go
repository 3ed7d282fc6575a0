package producer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func granted(t *ticket) bool {
	select {
	case <-t.granted:
		return true
	default:
		return false
	}
}

func TestTheBufferServesItsLineInOrder(t *testing.T) {
	b := buffer{limit: 10}
	require.True(t, b.take(8))
	large, small := b.queue(6), b.queue(1)
	require.False(t, b.take(1), "nobody overtakes")
	b.release(2)
	require.False(t, granted(large))
	require.False(t, granted(small))
	b.release(2)
	require.True(t, granted(large))
	require.False(t, granted(small))
	b.release(4)
	require.True(t, granted(small))
	require.EqualValues(t, 7, b.used)
}

func TestWhoLeavesTheLineMakesRoomForTheNext(t *testing.T) {
	b := buffer{limit: 10}
	require.True(t, b.take(8))
	large, small := b.queue(6), b.queue(1)
	b.leave(large)
	require.True(t, granted(small))
	b.leave(small)
	require.EqualValues(t, 8, b.used, "what was granted is given back")
}
