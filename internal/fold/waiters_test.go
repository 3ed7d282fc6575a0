package fold

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// TestADecisionThatWasLeftBeforeItWasMadeIsNoSuccess has who makes decisions pass one
// over while its caller is leaving.
func TestADecisionThatWasLeftBeforeItWasMadeIsNoSuccess(t *testing.T) {
	f := &Fold{}
	made := 0
	p := &proposal{done: make(chan error, 1), decide: func(record.LeaderEpoch) ([]record.Record, error) {
		made++
		return nil, nil
	}}
	require.False(t, p.leave())
	_, err := p.run(1)
	p.done <- err
	require.ErrorIs(t, f.leave(p, context.Canceled), context.Canceled)
	require.Zero(t, made)

	p = &proposal{done: make(chan error, 1), decide: p.decide}
	_, err = p.run(1)
	p.done <- err
	require.NoError(t, f.leave(p, context.Canceled), "it was made, and there was nothing to write")
	require.Equal(t, 1, made)

	p = &proposal{done: make(chan error, 1), decide: p.decide}
	_, err = p.run(1)
	require.NoError(t, err)
	require.True(t, p.leave())
	_, err = p.run(2) // the first epoch is over
	p.done <- err
	require.ErrorIs(t, f.leave(p, context.Canceled), record.ErrOutcomeUnknown)
	require.Equal(t, 2, made)
}
