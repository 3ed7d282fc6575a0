package consumer

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func reversed(w []string) []string {
	slices.Reverse(w)
	return w
}

func TestReadBackwardsBeginsAtTheNewestAndEndsAtTheStart(t *testing.T) {
	for _, size := range []int{1, 7, 400} {
		for _, maxBytes := range []int{1, 1000, DefaultMaxBytes} {
			m := newMemory("orders", 2)
			m.fill(t, "orders", 1000, size)
			got, err := collect(Read(t.Context(), m, "orders", Backwards(), MaxBytes(maxBytes)), 3000)
			require.ErrorIs(t, err, errEndOfSequence)
			require.Equal(t, append(reversed(want(0, 0, 1000)), reversed(want(1, 0, 1000))...), got, "batches of %d, fetches of %d bytes", size, maxBytes)
		}
	}
}

func TestReadBackwardsFetchesEachBatchOnce(t *testing.T) {
	m := newMemory("orders", 1)
	m.fill(t, "orders", 4000, 400)
	_, err := collect(Read(t.Context(), m, "orders", Backwards()), 5000)
	require.ErrorIs(t, err, errEndOfSequence)
	require.LessOrEqual(t, m["orders"][0].fetches, 10)
}

func TestReadBackwardsFromAnOffsetAndFromATime(t *testing.T) {
	m := newMemory("orders", 1)
	p := m["orders"][0]
	p.timed(t, 1000, 2000, 3000)
	p.timed(t, 4000, 5000)
	read := func(opt ReadOption) []string {
		got, err := collect(Read(t.Context(), m, "orders", Backwards(), opt), 100)
		require.ErrorIs(t, err, errEndOfSequence)
		return got
	}
	require.Equal(t, []string{"04", "03", "02", "01"}, read(FromOffset(3)))
	require.Equal(t, []string{"01"}, read(FromOffset(0)))
	require.Equal(t, []string{"05", "04", "03", "02", "01"}, read(FromEnd()))
	require.Equal(t, []string{"03", "02", "01"}, read(FromTime(time.UnixMilli(3500))))
	require.Empty(t, read(FromTime(time.UnixMilli(500))))
	p.trim(3)
	require.Equal(t, []string{"05", "04"}, read(FromEnd()))
	_, err := collect(Read(t.Context(), m, "orders", Backwards(), FromOffset(2)), 1)
	require.ErrorIs(t, err, record.ErrOffsetOutOfRange)
	_, err = collect(Read(t.Context(), m, "orders", Backwards(), FromOffset(9)), 1)
	require.ErrorIs(t, err, record.ErrOffsetOutOfRange)
}

func TestReadBackwardsEndsEarlyWhenRetentionComesTowardsIt(t *testing.T) {
	m := newMemory("orders", 1)
	m.fill(t, "orders", 1000, 1)
	p := m["orders"][0]
	var got []string
	for r, err := range Read(t.Context(), m, "orders", Backwards(), MaxBytes(1)) {
		require.NoError(t, err)
		got = append(got, string(r.Value))
		if r.Offset == 950 {
			p.trim(900)
		}
	}
	require.Equal(t, reversed(want(0, 900, 1000)), got)
}

func TestReadBackwardsPassesOverWhatIsLeftOut(t *testing.T) {
	m := newMemory("orders", 1)
	m.fill(t, "orders", 30, 10)
	got, err := collect(Read(t.Context(), holey{m, map[record.Offset]bool{10: true}}, "orders", Backwards()), 100)
	require.ErrorIs(t, err, errEndOfSequence)
	require.Equal(t, append(reversed(want(0, 20, 30)), reversed(want(0, 0, 10))...), got)
}

func TestReadBackwardsEndsWithItsContext(t *testing.T) {
	m := newMemory("orders", 1)
	m.fill(t, "orders", 1000, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	var last error
	for _, err := range Read(ctx, m, "orders", Backwards(), MaxBytes(1)) {
		if n++; n == 10 {
			cancel()
		}
		last = err
	}
	require.ErrorIs(t, last, context.Canceled)
}

func TestALiveReadSaysOnceWhenItHasCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("orders", 2)
		m.fill(t, "orders", 25, 4)
		n, calls := 0, 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			synctest.Wait()
			m.fill(t, "orders", 1, 1)
		}()
		for _, err := range Read(ctx, m, "orders", MaxBytes(200), CaughtUp(func() {
			calls++
			require.GreaterOrEqual(t, n, 50)
		})) {
			if err != nil {
				break
			}
			if n++; n == 52 {
				cancel()
			}
		}
		require.Equal(t, 1, calls)
	})
}

func TestAReadOfNothingHasCaughtUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("orders", 1)
		m.fill(t, "orders", 5, 5)
		for _, from := range []ReadOption{FromEnd(), FromOffset(5)} {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := collect(Read(ctx, m, "orders", from, CaughtUp(cancel)), 1)
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}

func TestAReadThatRetentionOvertakesCatchesUpWithTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("orders", 1)
		m.fill(t, "orders", 10, 5)
		ctx, cancel := context.WithCancel(t.Context())
		src := &afterOffsets{memory: m, then: func() { m["orders"][0].trim(10) }}
		_, err := collect(Read(ctx, src, "orders", CaughtUp(cancel)), 1)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// lagging is a Source with a replica close by, which is behind.
type lagging struct {
	memory
	follower memory
}

func (l lagging) FetchNear(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	return l.follower.Fetch(ctx, tp, from, maxBytes, iso)
}

func TestANearbyReadAsksTheReplicaCloseBy(t *testing.T) {
	m := newMemory("orders", 1)
	m.fill(t, "orders", 10, 5)
	src := lagging{newMemory("orders", 1), m}
	src.fill(t, "orders", 10, 5)
	got, err := collect(Read(t.Context(), src, "orders", Nearby(), UntilEnd()), 100)
	require.ErrorIs(t, err, errEndOfSequence)
	require.Equal(t, want(0, 0, 10), got)
	require.Zero(t, src.memory["orders"][0].fetches)
	_, err = collect(Read(t.Context(), m, "orders", Nearby(), UntilEnd()), 100)
	require.ErrorIs(t, err, errEndOfSequence, "a source without one is read as ever")
}
