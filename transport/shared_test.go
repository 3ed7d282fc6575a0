package transport

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// taken is a handler of shared requests that answers and keeps what it got.
type taken struct{ reqs chan [][]byte }

func (h taken) handle(_ context.Context, from string, req [][]byte, reply func([][]byte, error)) {
	h.reqs <- req
	reply([][]byte{[]byte(from)}, nil)
}

func TestASharedRequestIsNotCopied(t *testing.T) {
	n := NewNetwork()
	a, b := join(t, n, "a"), join(t, n, "b")
	h := taken{make(chan [][]byte, 2)}
	b.(Sharer).HandleShared(echoService, h.handle)
	b.Handle(echoService, echo)
	data := []byte("data")
	resp, err := CallShared(t.Context(), a, "b", echoService, []byte("head"), data)
	require.NoError(t, err)
	require.Equal(t, "a", string(resp))
	req := <-h.reqs
	require.Len(t, req, 2)
	require.Equal(t, "head", string(req[0]))
	require.Same(t, &data[0], &req[1][0])

	resp, err = Call(t.Context(), a, "b", echoService, data)
	require.NoError(t, err)
	require.Equal(t, "a:data", string(resp), "what is not shared goes to the other handler")
}

func TestASharedRequestIsCopiedForWhoDoesNotShare(t *testing.T) {
	n := NewNetwork()
	a, b := join(t, n, "a"), join(t, n, "b")
	_, err := CallShared(t.Context(), a, "b", echoService, []byte("x"))
	require.ErrorContains(t, err, "does not serve")
	b.(Sharer).HandleShared(echoService, taken{}.handle)
	b.(Sharer).HandleShared(echoService, nil)
	got := make(chan []byte, 1)
	b.Handle(echoService, func(ctx context.Context, from string, req []byte, reply func([][]byte, error)) {
		got <- req
		echo(ctx, from, req, reply)
	})
	data := []byte("data")
	resp, err := CallShared(t.Context(), a, "b", echoService, data, []byte(" and more"))
	require.NoError(t, err)
	require.Equal(t, "a:data and more", string(resp))
	require.NotSame(t, &data[0], &(<-got)[0])

	plain := struct{ Endpoint }{a} // knows nothing of sharing
	resp, err = CallShared(t.Context(), plain, "b", echoService, data)
	require.NoError(t, err)
	require.Equal(t, "a:data", string(resp))
}

func TestSharedRequestsKeepTheirPlaceAmongOthers(t *testing.T) {
	n := NewNetwork()
	a, b := join(t, n, "a"), join(t, n, "b")
	got := make(chan byte, 100)
	b.Handle(echoService, func(_ context.Context, _ string, req []byte, reply func([][]byte, error)) {
		got <- req[0]
		reply(nil, nil)
	})
	b.(Sharer).HandleShared(echoService, func(_ context.Context, _ string, req [][]byte, reply func([][]byte, error)) {
		got <- req[0][0]
		reply(nil, nil)
	})
	n.Delay("a", "b", time.Millisecond)
	for i := range byte(100) {
		send := a.Send
		if i%2 == 1 {
			send = a.(Sharer).SendShared
		}
		send(t.Context(), "b", echoService, [][]byte{{i}}, func([]byte, error) {})
	}
	for i := range byte(100) {
		require.Equal(t, i, <-got)
	}
}

func TestASharedRequestEndsWithItsNode(t *testing.T) {
	n := NewNetwork()
	a, b := join(t, n, "a"), join(t, n, "b")
	arrived := make(chan struct{})
	b.(Sharer).HandleShared(echoService, func(context.Context, string, [][]byte, func([][]byte, error)) { close(arrived) })
	ended := make(chan error, 1)
	a.(Sharer).SendShared(t.Context(), "b", echoService, [][]byte{{1}}, func(_ []byte, err error) { ended <- err })
	<-arrived
	require.NoError(t, b.Close())
	require.ErrorIs(t, <-ended, record.ErrOutcomeUnknown)
	b.(Sharer).HandleShared(echoService, taken{}.handle) // too late
	_, err := CallShared(t.Context(), a, "b", echoService, []byte{1})
	require.ErrorIs(t, err, record.ErrUnreachable)
}
