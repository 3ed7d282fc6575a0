package consumer

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// holey is a partition of which some batches are left out for the reader's
// isolation: a fetch that meets one answers with none of it.
type holey struct {
	memory
	left map[record.Offset]bool // base offsets of batches left out
}

func (h holey) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	f, err := h.memory.Fetch(ctx, tp, from, maxBytes, iso)
	if err != nil {
		return f, err
	}
	first := f.Batches[0]
	f.Next, f.Batches = first.NextOffset(), f.Batches[:1]
	if h.left[first.BaseOffset()] {
		f.Batches = nil
	}
	return f, nil
}

func TestAReadGoesOnBehindWhatIsLeftOut(t *testing.T) {
	m := newMemory("t", 1)
	m.fill(t, "t", 4, 1)
	src := holey{m, map[record.Offset]bool{1: true, 3: true}}
	var got []string
	for r, err := range Read(t.Context(), src, "t", UntilEnd()) {
		require.NoError(t, err)
		got = append(got, string(r.Value))
	}
	require.Equal(t, []string{"0:0", "0:2"}, got)
}
