package transport

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAPausedNodeGetsEverythingLateAndInOrder: what was sent before, during and
// after the pause arrives in that order, and nothing of it before the pause ends.
func TestAPausedNodeGetsEverythingLateAndInOrder(t *testing.T) {
	for name, end := range map[string]func(*Network){
		"resumed": func(n *Network) { n.Resume("b") },
		"healed":  func(n *Network) { n.Heal() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := NewNetwork()
				a, b := join(t, n, "a"), join(t, n, "b")
				var order []byte
				b.Handle(echoService, func(_ context.Context, _ string, req []byte, reply func([][]byte, error)) {
					order = append(order, req[0])
					reply(nil, nil)
				})
				done := 0
				request := func(i byte) {
					a.Send(t.Context(), "b", echoService, [][]byte{{i}}, func(_ []byte, err error) {
						require.NoError(t, err)
						done++
					})
				}
				n.Delay("a", "b", time.Second)
				request(0) // under way when the pause begins
				n.Pause("b")
				request(1)
				n.Delay("a", "b", 0)
				request(2)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Empty(t, order)
				end(n)
				request(3)
				synctest.Wait()
				require.Equal(t, []byte{0, 1, 2, 3}, order)
				require.Equal(t, 4, done)
				request(4)
				require.Equal(t, 5, done, "the link is direct again")
			})
		})
	}
}

// TestAPauseDelaysAnswersToo and a call that has given up meanwhile stays so.
func TestAPauseDelaysAnswersToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork()
		a, b := join(t, n, "a"), join(t, n, "b")
		s := newSilent()
		b.Handle(echoService, s.handle)
		patient := send(t, t.Context(), a, "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		hasty := send(t, ctx, a, "b")
		n.Pause("b")
		(<-s.reply)(nil, nil)
		(<-s.reply)(nil, nil)
		patient.waits()
		time.Sleep(time.Minute)
		require.ErrorIs(t, hasty.ended(), context.DeadlineExceeded)
		n.Resume("b")
		require.NoError(t, patient.ended())
		require.NoError(t, b.Close())
	})
}

func TestANodeThatLeavesWhilePausedLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork()
		a, b := join(t, n, "a"), join(t, n, "b")
		n.Pause("b")
		p := send(t, t.Context(), a, "b")
		p.waits()
		require.NoError(t, b.Close())
		require.Error(t, p.ended())
		b = join(t, n, "b")
		b.Handle(echoService, echo)
		n.Resume("b")
		require.NoError(t, send(t, t.Context(), a, "b").ended())
	})
}
