package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

const echoService Service = 1

// join attaches a node that closes with the test.
func join(t *testing.T, n *Network, id string) Endpoint {
	t.Helper()
	e, err := n.Join(id)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// echo answers with the sender's id and the request.
func echo(_ context.Context, from string, req []byte, reply func([][]byte, error)) {
	reply([][]byte{[]byte(from), []byte(":"), req}, nil)
}

// silent keeps the replies of the requests it gets, for the test to use.
type silent struct {
	ctx   chan context.Context
	reply chan func([][]byte, error)
}

func newSilent() *silent {
	return &silent{make(chan context.Context, 100), make(chan func([][]byte, error), 100)}
}

func (s *silent) handle(ctx context.Context, _ string, _ []byte, reply func([][]byte, error)) {
	s.ctx <- ctx
	s.reply <- reply
}

// pending is one call that a test has started.
type pending struct {
	t    *testing.T
	ends chan error
}

func send(t *testing.T, ctx context.Context, e Endpoint, to string) pending {
	p := pending{t, make(chan error, 10)}
	e.Send(ctx, to, echoService, nil, func(_ []byte, err error) { p.ends <- err })
	return p
}

// waits says that the call has not ended. Only inside a synctest bubble.
func (p pending) waits() {
	p.t.Helper()
	synctest.Wait()
	require.Empty(p.t, p.ends, "the call has ended")
}

// ended returns how the call ended and checks that it ended once.
func (p pending) ended() error {
	p.t.Helper()
	err := <-p.ends
	require.Empty(p.t, p.ends, "done was called twice")
	return err
}

func TestARequestIsAnswered(t *testing.T) {
	n := NewNetwork()
	a, b := join(t, n, "a"), join(t, n, "b")
	b.Handle(echoService, echo)
	a.Handle(echoService, echo)

	got, err := Call(t.Context(), a, "b", echoService, []byte("he"), nil, []byte("llo"))
	require.NoError(t, err)
	require.Equal(t, "a:hello", string(got))

	got, err = Call(t.Context(), a, "a", echoService, []byte("myself"))
	require.NoError(t, err)
	require.Equal(t, "a:myself", string(got))
	require.Equal(t, "a", a.ID())
}

func TestBuffersAreCopiedBothWays(t *testing.T) {
	n := NewNetwork()
	a, b := join(t, n, "a"), join(t, n, "b")
	answer := []byte("answer")
	var seen []byte
	b.Handle(echoService, func(_ context.Context, _ string, req []byte, reply func([][]byte, error)) {
		seen = req
		reply([][]byte{answer}, nil)
		copy(answer, "xxxxxx")
	})
	request := []byte("request")
	got, err := Call(t.Context(), a, "b", echoService, request)
	require.NoError(t, err)
	copy(request, "xxxxxxx")
	require.Equal(t, "request", string(seen), "the handler shares memory with the sender")
	require.Equal(t, "answer", string(got), "the sender shares memory with the handler")
}

func TestAHandlersErrorComesBackAsText(t *testing.T) {
	n := NewNetwork()
	a, b := join(t, n, "a"), join(t, n, "b")
	b.Handle(echoService, func(_ context.Context, _ string, _ []byte, reply func([][]byte, error)) {
		reply([][]byte{[]byte("ignored")}, errors.New("no such thing"))
	})
	got, err := Call(t.Context(), a, "b", echoService)
	var remote *RemoteError
	require.ErrorAs(t, err, &remote)
	require.Equal(t, RemoteError{Node: "b", Text: "no such thing"}, *remote)
	require.Nil(t, got)
}

func TestASecondReplyIsIgnored(t *testing.T) {
	n := NewNetwork()
	a, b := join(t, n, "a"), join(t, n, "b")
	b.Handle(echoService, func(_ context.Context, _ string, _ []byte, reply func([][]byte, error)) {
		reply(nil, nil)
		reply(nil, errors.New("again"))
	})
	require.NoError(t, send(t, t.Context(), a, "b").ended())
}

func TestJoinRefusesAnEmptyAndATakenID(t *testing.T) {
	n := NewNetwork()
	join(t, n, "a")
	_, err := n.Join("a")
	require.ErrorIs(t, err, ErrNodeTaken)
	_, err = n.Join("")
	require.ErrorIs(t, err, record.ErrInvalid)
}

func TestWhoIsNotThereIsUnreachableAtOnce(t *testing.T) {
	n := NewNetwork()
	a, b := join(t, n, "a"), join(t, n, "b")

	require.ErrorIs(t, send(t, t.Context(), a, "nobody").ended(), record.ErrUnreachable)
	require.ErrorIs(t, send(t, t.Context(), a, "b").ended(), record.ErrUnreachable, "no handler yet")

	b.Handle(echoService, echo)
	require.NoError(t, send(t, t.Context(), a, "b").ended())
	b.Handle(echoService, nil)
	require.ErrorIs(t, send(t, t.Context(), a, "b").ended(), record.ErrUnreachable, "handler removed")

	require.NoError(t, b.Close())
	require.ErrorIs(t, send(t, t.Context(), a, "b").ended(), record.ErrUnreachable, "node closed")
}

func TestTheContextEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork()
		a, b := join(t, n, "a"), join(t, n, "b")
		s := newSilent()
		b.Handle(echoService, s.handle)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := send(t, ctx, a, "b")
		p.waits()
		handlerCtx := <-s.ctx
		require.NoError(t, handlerCtx.Err())

		require.ErrorIs(t, p.ended(), context.DeadlineExceeded)
		require.Error(t, handlerCtx.Err(), "the handler must learn that nobody waits")
		(<-s.reply)(nil, nil) // too late
		p.waits()

		require.ErrorIs(t, send(t, ctx, a, "b").ended(), context.DeadlineExceeded)
		require.Empty(t, s.ctx, "a request of an ended context was handed over")
	})
}

func TestClosingEitherSideEndsWhatIsInFlight(t *testing.T) {
	for _, side := range []string{"caller", "handler"} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := NewNetwork()
				a, b, c := join(t, n, "a"), join(t, n, "b"), join(t, n, "c")
				s := newSilent()
				b.Handle(echoService, s.handle)
				c.Handle(echoService, s.handle)

				p := send(t, context.Background(), a, "b")
				other := send(t, context.Background(), c, "c")
				p.waits()
				closing := map[string]Endpoint{"caller": a, "handler": b}[side]
				require.NoError(t, closing.Close())
				require.NoError(t, closing.Close(), "Close must be idempotent")

				require.ErrorIs(t, p.ended(), record.ErrOutcomeUnknown)
				require.Error(t, (<-s.ctx).Err(), "the handler must learn that a node closed")
				(<-s.reply)(nil, nil) // too late
				p.waits()
				other.waits()
				if side == "caller" {
					require.ErrorIs(t, send(t, t.Context(), a, "b").ended(), record.ErrClosed)
				}
			})
		})
	}
}

func TestANodeCanJoinAgainUnderItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork()
		a, old := join(t, n, "a"), join(t, n, "b")
		old.Handle(echoService, echo)
		n.Delay("a", "b", time.Second)
		late := send(t, t.Context(), a, "b")
		late.waits()

		require.NoError(t, old.Close())
		require.ErrorIs(t, late.ended(), record.ErrOutcomeUnknown)
		b := join(t, n, "b")
		require.NoError(t, old.Close(), "closing the old one again must not touch the new one")

		var served int
		b.Handle(echoService, func(ctx context.Context, from string, req []byte, reply func([][]byte, error)) {
			served++
			echo(ctx, from, req, reply)
		})
		n.Heal()
		start := time.Now()
		require.NoError(t, send(t, t.Context(), a, "b").ended())
		require.Zero(t, time.Since(start), "the new node waits behind the old one's messages")
		time.Sleep(2 * time.Second) // the bubble's clock
		require.Equal(t, 1, served, "a request to the old node reached the new one")
	})
}

func TestACutLinkSwallowsUntilItIsHealed(t *testing.T) {
	type reach map[string]bool // "from-to" → a call gets its answer
	cases := map[string]struct {
		fault func(*Network)
		want  reach
	}{
		"nothing cut":           {func(n *Network) {}, reach{"a-b": true, "b-a": true, "a-c": true, "c-b": true}},
		"cut":                   {func(n *Network) { n.Cut("a", "b") }, reach{"a-c": true, "c-b": true}},
		"one way hurts answers": {func(n *Network) { n.CutOneWay("a", "b") }, reach{"a-c": true, "c-b": true}},
		"isolated":              {func(n *Network) { n.Isolate("a") }, reach{"a-a": true, "c-b": true}},
		"isolated, other end":   {func(n *Network) { n.Isolate("b") }, reach{"a-c": true, "b-b": true}},
		"all dropped":           {func(n *Network) { n.Drop("a", "b", 1) }, reach{"a-c": true, "c-b": true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := NewNetwork()
				nodes := make(map[string]Endpoint)
				for _, id := range []string{"a", "b", "c"} {
					nodes[id] = join(t, n, id)
					nodes[id].Handle(echoService, echo)
				}
				c.fault(n)
				for _, link := range []string{"a-b", "b-a", "a-c", "c-b", "a-a", "b-b"} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, err := Call(ctx, nodes[link[:1]], link[2:], echoService)
					cancel()
					if c.want[link] || link[0] == link[2] {
						require.NoError(t, err, link)
					} else {
						require.ErrorIs(t, err, context.DeadlineExceeded, link)
					}
				}
				n.Heal()
				require.NoError(t, send(t, t.Context(), nodes["a"], "b").ended())
				require.NoError(t, send(t, t.Context(), nodes["b"], "a").ended())
			})
		})
	}
}

func TestAOneWayCutLetsTheRequestThroughAndSwallowsTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork()
		a, b := join(t, n, "a"), join(t, n, "b")
		s := newSilent()
		b.Handle(echoService, s.handle)
		n.CutOneWay("b", "a")

		p := send(t, t.Context(), a, "b")
		(<-s.reply)(nil, nil)
		p.waits()
		n.Heal()
		p.waits() // what is lost stays lost
		require.NoError(t, a.Close())
		require.ErrorIs(t, p.ended(), record.ErrOutcomeUnknown)
	})
}

func TestACutSwallowsAlsoWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, cut := range map[string]func(*Network){
			"cut":      func(n *Network) { n.Cut("a", "b") },
			"isolated": func(n *Network) { n.Isolate("a") },
		} {
			n := NewNetwork()
			a, b := join(t, n, "a"), join(t, n, "b")
			s := newSilent()
			b.Handle(echoService, s.handle)
			n.Delay("a", "b", time.Second)
			p := send(t, t.Context(), a, "b")
			cut(n)
			time.Sleep(2 * time.Second) // the bubble's clock
			p.waits()
			require.Empty(t, s.reply, name)
		}
	})
}

func TestADelayedLinkKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork()
		a, b := join(t, n, "a"), join(t, n, "b")
		start := time.Now()
		var mu sync.Mutex
		var order []uint32
		var at []time.Duration
		b.Handle(echoService, func(_ context.Context, _ string, req []byte, reply func([][]byte, error)) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, binary.BigEndian.Uint32(req))
			at = append(at, time.Since(start))
			reply(nil, nil)
		})
		var answers sync.WaitGroup
		request := func(i uint32) {
			answers.Add(1)
			a.Send(t.Context(), "b", echoService, [][]byte{binary.BigEndian.AppendUint32(nil, i)},
				func(_ []byte, err error) { require.NoError(t, err); answers.Done() })
		}
		// The delay changes between the requests, also to nothing.
		for i, d := range []time.Duration{0, 30, 10, 0, 20, 0} {
			n.Delay("a", "b", d*time.Millisecond)
			request(uint32(i))
		}
		answers.Wait()
		require.Equal(t, []uint32{0, 1, 2, 3, 4, 5}, order)
		ms := time.Millisecond
		require.Equal(t, []time.Duration{0, 30 * ms, 30 * ms, 30 * ms, 30 * ms, 30 * ms}, at)

		synctest.Wait() // the queue has run empty: the link is direct again
		before := time.Since(start)
		request(6)
		answers.Wait()
		require.Equal(t, before, at[6])

		n.Delay("b", "a", time.Second) // answers are messages too
		request(7)
		answers.Wait()
		require.Equal(t, before, at[7])
		require.Equal(t, before+time.Second, time.Since(start))
	})
}

func TestRequestsOnALinkKeepTheirOrder(t *testing.T) {
	const senders, each = 4, 2000
	n := NewNetwork()
	b := join(t, n, "b")
	var mu sync.Mutex
	next := make(map[string]uint32)
	var wrong []string
	b.Handle(echoService, func(_ context.Context, from string, req []byte, reply func([][]byte, error)) {
		mu.Lock()
		if got := binary.BigEndian.Uint32(req); got != next[from] {
			wrong = append(wrong, fmt.Sprintf("%s: %d instead of %d", from, got, next[from]))
		}
		next[from]++
		mu.Unlock()
		reply(nil, nil)
	})
	var sending, answers sync.WaitGroup
	for i := range senders {
		e := join(t, n, fmt.Sprint("sender ", i))
		sending.Go(func() {
			for k := range uint32(each) {
				switch k % 100 { // faults come and go meanwhile
				case 20:
					n.Delay(e.ID(), "b", time.Microsecond)
				case 60:
					n.Delay(e.ID(), "b", 0)
				}
				answers.Add(1)
				e.Send(t.Context(), "b", echoService, [][]byte{binary.BigEndian.AppendUint32(nil, k)},
					func([]byte, error) { answers.Done() })
			}
		})
	}
	sending.Wait()
	answers.Wait()
	require.Empty(t, wrong)
	require.Len(t, next, senders)
	for from, count := range next {
		require.EqualValues(t, each, count, from)
	}
}

func TestDropFollowsTheSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork()
		a, b := join(t, n, "a"), join(t, n, "b")
		b.Handle(echoService, echo)
		run := func() (arrived string) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for range 400 {
				p := send(t, ctx, a, "b")
				if len(p.ends) == 1 {
					arrived += "+"
				} else {
					arrived += "-"
				}
			}
			return arrived
		}
		n.Drop("a", "b", 0.25)
		n.SetSeed(1)
		first, second := run(), run()
		require.NotEqual(t, first, second)
		n.SetSeed(1)
		require.Equal(t, first, run(), "the same seed must lose the same messages")
		n.SetSeed(2)
		require.NotEqual(t, first, run())

		lost := 0
		for _, c := range first {
			if c == '-' {
				lost++
			}
		}
		require.InDelta(t, 100, lost, 40)
	})
}

// Everything happens at once here; each call must still end exactly once, and
// when all nodes have closed no goroutine may be left.
func TestEveryCallEndsExactlyOnceAmidFaultsAndCloses(t *testing.T) {
	before := runtime.NumGoroutine()
	n := NewNetwork()
	ids := []string{"a", "b", "c"}
	ctx, cancel := context.WithCancel(context.Background())
	var sending, faults, pending sync.WaitGroup
	stop := make(chan struct{})

	faults.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			from, to := ids[i%3], ids[(i/3)%3]
			switch i % 5 {
			case 0:
				n.Delay(from, to, 50*time.Microsecond)
			case 1:
				n.Drop(from, to, 0.1)
			case 2:
				n.CutOneWay(from, to)
			case 3:
				n.Isolate(from)
			case 4:
				n.Heal()
			}
		}
	})
	for _, id := range ids {
		sending.Go(func() {
			for round := range 30 {
				e, err := n.Join(id)
				if err != nil {
					t.Errorf("joining again: %v", err)
					return
				}
				e.Handle(echoService, func(ctx context.Context, from string, req []byte, reply func([][]byte, error)) {
					if round%2 == 0 {
						echo(ctx, from, req, reply)
					} else {
						go echo(ctx, from, req, reply)
					}
				})
				for k := range 100 {
					var once sync.Once
					pending.Add(1)
					callCtx, cancelCall := context.WithCancel(ctx)
					e.Send(callCtx, ids[k%3], echoService, nil, func([]byte, error) {
						first := false
						once.Do(func() { first = true })
						if !first {
							t.Error("done was called twice")
							return
						}
						pending.Done()
					})
					if k%7 == 0 {
						cancelCall()
					} else {
						defer cancelCall()
					}
				}
				_ = e.Close()
			}
		})
	}
	sending.Wait()
	close(stop)
	faults.Wait()
	pending.Wait() // every call has ended, though most contexts still live
	cancel()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, time.Millisecond,
		"goroutines are left: %d before, %d after", before, runtime.NumGoroutine())
}

func BenchmarkCall(b *testing.B) {
	n := NewNetwork()
	from, err := n.Join("a")
	require.NoError(b, err)
	to, err := n.Join("b")
	require.NoError(b, err)
	to.Handle(echoService, echo)
	payload := make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Call(b.Context(), from, "b", echoService, payload); err != nil {
			b.Fatal(err)
		}
	}
}
