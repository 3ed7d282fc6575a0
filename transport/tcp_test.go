package transport

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/relay"
	"github.com/quorumlog/quorumlog/record"
)

// listen opens an endpoint that closes with the test.
func listen(t *testing.T, cfg TCPConfig) *TCP {
	t.Helper()
	e, err := ListenTCP(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// pair returns two nodes; a knows where b is, which b's relay passes on.
func pair(t *testing.T) (a, b *TCP, toB *relay.Relay) {
	t.Helper()
	toB = newRelay(t)
	b = listen(t, TCPConfig{ID: "b"})
	toB.Target(b.Addr().String())
	a = listen(t, TCPConfig{ID: "a", Peers: map[string]string{"b": toB.Addr()}})
	return a, b, toB
}

func newRelay(t *testing.T) *relay.Relay {
	t.Helper()
	r, err := relay.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func TestTCPCarriesRequestsAndAnswers(t *testing.T) {
	a, b, _ := pair(t)
	b.Handle(echoService, echo)
	a.Handle(echoService, echo)
	got, err := Call(t.Context(), a, "b", echoService, []byte("he"), nil, []byte("llo"))
	require.NoError(t, err)
	require.Equal(t, "a:hello", string(got))
	got, err = Call(t.Context(), a, "a", echoService, []byte("myself"))
	require.NoError(t, err)
	require.Equal(t, "a:myself", string(got))
	got, err = Call(t.Context(), b, "a", echoService, []byte("back"))
	require.NoError(t, err, "b knows where a is, since a has said so")
	require.Equal(t, "b:back", string(got))

	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	got, err = Call(t.Context(), a, "b", echoService, large)
	require.NoError(t, err)
	require.True(t, bytes.Equal(large, got[2:]))

	_, err = Call(t.Context(), a, "b", echoService, make([]byte, maxFrame), []byte{0})
	require.ErrorIs(t, err, record.ErrTooLarge)
}

func TestTCPSaysWhatBecameOfARequest(t *testing.T) {
	a, b, toB := pair(t)
	_, err := Call(t.Context(), a, "nobody", echoService)
	require.ErrorIs(t, err, record.ErrUnreachable)
	_, err = Call(t.Context(), a, "b", echoService)
	require.ErrorIs(t, err, record.ErrUnreachable, "there is no handler")
	require.ErrorContains(t, err, "does not serve")

	b.Handle(echoService, func(_ context.Context, _ string, _ []byte, reply func([][]byte, error)) {
		reply(nil, errors.New("no such thing"))
		reply(nil, errors.New("again"))
	})
	var remote *RemoteError
	_, err = Call(t.Context(), a, "b", echoService)
	require.ErrorAs(t, err, &remote)
	require.Equal(t, RemoteError{Node: "b", Text: "no such thing"}, *remote)

	s := newSilent()
	b.Handle(echoService, s.handle)
	p := send(t, context.Background(), a, "b")
	handlerCtx := <-s.ctx
	toB.Target("")
	toB.Break()
	require.ErrorIs(t, p.ended(), record.ErrOutcomeUnknown)
	<-handlerCtx.Done()
	(<-s.reply)(nil, nil) // too late

	_, err = Call(t.Context(), a, "b", echoService)
	require.ErrorIs(t, err, record.ErrUnreachable, "nobody listens")
	b.Handle(echoService, echo)
	toB.Target(b.Addr().String())
	require.Eventually(t, func() bool {
		_, err := Call(t.Context(), a, "b", echoService)
		return err == nil
	}, 10*time.Second, time.Millisecond, "the connection does not come back")

	require.NoError(t, a.Close())
	_, err = Call(t.Context(), a, "b", echoService)
	require.ErrorIs(t, err, record.ErrClosed)
}

func TestTCPTellsTheHandlerThatNobodyWaits(t *testing.T) {
	a, b, _ := pair(t)
	s := newSilent()
	b.Handle(echoService, s.handle)
	ctx, cancel := context.WithCancel(t.Context())
	p := send(t, ctx, a, "b")
	handlerCtx := <-s.ctx
	require.NoError(t, handlerCtx.Err())
	cancel()
	require.ErrorIs(t, p.ended(), context.Canceled)
	<-handlerCtx.Done()
	(<-s.reply)(nil, nil)
	require.ErrorIs(t, send(t, ctx, a, "b").ended(), context.Canceled)
	require.Empty(t, s.ctx, "a request of an ended context was handed over")
}

func TestTCPKeepsTheOrderOfRequests(t *testing.T) {
	a, b, _ := pair(t)
	const n = 2000
	seen := make(chan string, n)
	b.Handle(echoService, func(_ context.Context, _ string, req []byte, reply func([][]byte, error)) {
		seen <- string(req)
		reply(nil, nil)
	})
	var answered sync.WaitGroup
	for i := range n {
		answered.Add(1)
		a.Send(t.Context(), "b", echoService, [][]byte{fmt.Append(nil, i)}, func(_ []byte, err error) {
			if err != nil {
				t.Error(err)
			}
			answered.Done()
		})
	}
	answered.Wait()
	for i := range n {
		require.Equal(t, fmt.Sprint(i), <-seen)
	}
}

// A cut that nobody is told of: connections stay, and nothing comes.
func TestTCPGivesUpASilentConnection(t *testing.T) {
	t.Parallel()
	a, b, toB := pair(t)
	b.Handle(echoService, echo)
	_, err := Call(t.Context(), a, "b", echoService)
	require.NoError(t, err)
	toB.Cut(relay.Both, true)
	_, err = Call(t.Context(), a, "b", echoService)
	require.ErrorIs(t, err, record.ErrOutcomeUnknown)
	require.ErrorIs(t, err, errSilent)
	toB.Heal()
	require.Eventually(t, func() bool {
		_, err := Call(t.Context(), a, "b", echoService)
		return err == nil
	}, 10*time.Second, time.Millisecond)
}

func TestTCPWaitsForAHandlerThatTakesLong(t *testing.T) {
	t.Parallel()
	a, b, _ := pair(t)
	s := newSilent()
	b.Handle(echoService, s.handle)
	p := send(t, t.Context(), a, "b")
	reply := <-s.reply
	select {
	case err := <-p.ends:
		t.Fatal("a connection on which pings are answered was given up: ", err)
	case <-time.After(silentAfter + 2*pingAfter):
	}
	reply(nil, nil)
	require.NoError(t, p.ended())
}

func TestNodesTellEachOtherWhereTheyAre(t *testing.T) {
	a := listen(t, TCPConfig{ID: "a"})
	peers := map[string]string{"a": a.Addr().String()}
	nodes := []*TCP{a}
	for _, id := range []string{"b", "c", "d"} {
		nodes = append(nodes, listen(t, TCPConfig{ID: id, Peers: peers}))
	}
	for _, n := range nodes {
		n.Handle(echoService, echo)
	}
	for _, from := range nodes {
		for _, to := range nodes {
			require.Eventually(t, func() bool {
				_, err := Call(t.Context(), from, to.ID(), echoService)
				return err == nil
			}, 10*time.Second, time.Millisecond, "%s does not find %s", from.ID(), to.ID())
		}
	}
}

func TestANodeThatComesBackElsewhereIsFound(t *testing.T) {
	a, b, toB := pair(t)
	b.Handle(echoService, echo)
	_, err := Call(t.Context(), a, "b", echoService)
	require.NoError(t, err)
	toB.Target("")
	require.NoError(t, b.Close())
	b = listen(t, TCPConfig{ID: "b", Peers: map[string]string{"a": a.Addr().String()}})
	b.Handle(echoService, echo)
	require.Eventually(t, func() bool {
		_, err := Call(t.Context(), a, "b", echoService)
		return err == nil
	}, 10*time.Second, time.Millisecond)
}

func TestWhoIsNotLookedForIsRefused(t *testing.T) {
	c := listen(t, TCPConfig{ID: "c"})
	a := listen(t, TCPConfig{ID: "a", Peers: map[string]string{"b": c.Addr().String()}})
	_, err := Call(t.Context(), a, "b", echoService)
	require.ErrorIs(t, err, record.ErrUnreachable)
	require.ErrorContains(t, err, `here is node "c", not "b"`)

	twin := listen(t, TCPConfig{ID: "c", Peers: map[string]string{"d": c.Addr().String()}})
	_, err = Call(t.Context(), twin, "d", echoService)
	require.ErrorIs(t, err, record.ErrUnreachable)
}

// Whatever comes instead of a greeting or a frame ends the connection, and that only.
func TestBytesThatMakeNoSenseHurtOnlyTheirConnection(t *testing.T) {
	b := listen(t, TCPConfig{ID: "b"})
	b.Handle(echoService, echo)
	hi := append([]byte{'q', 'l', 'o', 'g', protocolVersion, byte(echoService), 0, 0},
		newFrame(frameHello, 0, hello{from: "x", to: "b", addr: "127.0.0.1:1"}.put())...)
	request := append(bytes.Clone(hi), newFrame(frameRequest, 1, []byte("hello"))...)
	for i := range request {
		for _, flip := range []byte{0x01, 0x80} {
			wrong := bytes.Clone(request)
			wrong[i] ^= flip
			conn, err := net.Dial("tcp", b.Addr().String())
			require.NoError(t, err)
			_, err = conn.Write(wrong)
			require.NoError(t, err)
			_ = conn.(*net.TCPConn).CloseWrite() // the other side may have closed already,
			got, _ := io.ReadAll(conn)           // and reset it
			require.NotContains(t, string(got), "x:hello", "byte %d with bit %#x flipped was taken for right", i, flip)
			require.NoError(t, conn.Close())
		}
	}
	a := listen(t, TCPConfig{ID: "a", Peers: map[string]string{"b": b.Addr().String()}})
	_, err := Call(t.Context(), a, "b", echoService)
	require.NoError(t, err)
}

func TestTCPRefusesToBeOpenToEveryone(t *testing.T) {
	cert := certificates(t)
	for _, c := range []struct {
		name string
		cfg  TCPConfig
		says string
	}{
		{"no id", TCPConfig{}, "no id"},
		{"all addresses without TLS", TCPConfig{ID: "a", Listen: ":0"}, "TLS is nil"},
		{"another address without TLS", TCPConfig{ID: "a", Listen: "192.0.2.1:0"}, "TLS is nil"},
		{"TLS that takes anybody", TCPConfig{ID: "a", Listen: ":0", TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}, "RequireAndVerifyClientCert"},
		{"TLS without a certificate", TCPConfig{ID: "a", TLS: &tls.Config{}}, "no certificate"},
		{"an address without a port", TCPConfig{ID: "a", Peers: map[string]string{"b": "host-b"}}, "host-b"},
		{"an address with port 0", TCPConfig{ID: "a", Peers: map[string]string{"b": "host-b:0"}}, "no port"},
		{"Listen that is no address", TCPConfig{ID: "a", Listen: "7400"}, "7400"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ListenTCP(c.cfg)
			require.ErrorIs(t, err, record.ErrInvalid)
			require.ErrorContains(t, err, c.says)
		})
	}
	listen(t, TCPConfig{ID: "a", Listen: ":0", Insecure: true})
	listen(t, TCPConfig{ID: "a", Listen: "localhost:0"})
}

func TestTLSKeepsOthersOut(t *testing.T) {
	cert := certificates(t)
	pool := x509.NewCertPool()
	pool.AddCert(cert.Leaf)
	secure := &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	b := listen(t, TCPConfig{ID: "b", Listen: "127.0.0.1:0", TLS: secure})
	b.Handle(echoService, echo)
	peers := map[string]string{"b": b.Addr().String()}

	a := listen(t, TCPConfig{ID: "a", Peers: peers, TLS: secure})
	got, err := Call(t.Context(), a, "b", echoService, []byte("hello"))
	require.NoError(t, err)
	require.Equal(t, "a:hello", string(got))

	plain := listen(t, TCPConfig{ID: "c", Peers: peers})
	_, err = Call(t.Context(), plain, "b", echoService)
	require.ErrorIs(t, err, record.ErrUnreachable)

	stranger := secure.Clone()
	stranger.Certificates = []tls.Certificate{certificates(t)}
	other := listen(t, TCPConfig{ID: "d", Peers: peers, TLS: stranger})
	_, err = Call(t.Context(), other, "b", echoService)
	require.ErrorIs(t, err, record.ErrUnreachable)
}

// certificates returns a certificate of 127.0.0.1 that has signed itself.
func certificates(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestEveryTCPCallEndsExactlyOnceAmidFaultsAndCloses(t *testing.T) {
	before := runtime.NumGoroutine()
	relays, peers := map[string]*relay.Relay{}, map[string]string{}
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		r, err := relay.Listen()
		require.NoError(t, err)
		relays[id], peers[id] = r, r.Addr()
	}
	var sending, faults, pending sync.WaitGroup
	var ok atomic.Int64
	stop := make(chan struct{})
	faults.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			switch r := relays[ids[i%3]]; i % 4 {
			case 0:
				r.Break()
			case 1:
				r.Cut(relay.Both, true)
			default:
				r.Heal()
			}
		}
	})
	for _, id := range ids {
		sending.Go(func() {
			for round := range 20 {
				e, err := ListenTCP(TCPConfig{ID: id, Peers: peers})
				if err != nil {
					t.Error(err)
					return
				}
				relays[id].Target(e.Addr().String())
				e.Handle(echoService, func(ctx context.Context, from string, req []byte, reply func([][]byte, error)) {
					if round%2 == 0 {
						echo(ctx, from, req, reply)
					} else {
						go echo(ctx, from, req, reply)
					}
				})
				var some sync.WaitGroup // most are to be answered before the node closes
				for k := range 100 {
					var calls atomic.Int32
					pending.Add(1)
					some.Add(1)
					ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
					defer cancel()
					e.Send(ctx, ids[k%3], echoService, [][]byte{make([]byte, k*100)}, func(_ []byte, err error) {
						if calls.Add(1) > 1 {
							t.Error("done was called twice")
							return
						}
						if err == nil {
							ok.Add(1)
						}
						pending.Done()
						some.Done()
					})
				}
				if round%3 > 0 {
					some.Wait()
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sending.Wait()
	close(stop)
	faults.Wait()
	pending.Wait()
	require.Greater(t, ok.Load(), int64(500), "hardly anything was answered")
	for _, r := range relays {
		require.NoError(t, r.Close())
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, time.Millisecond,
		"goroutines are left: %d before, %d after", before, runtime.NumGoroutine())
}

func BenchmarkTCPCall(b *testing.B) {
	to, err := ListenTCP(TCPConfig{ID: "b"})
	require.NoError(b, err)
	defer to.Close()
	from, err := ListenTCP(TCPConfig{ID: "a", Peers: map[string]string{"b": to.Addr().String()}})
	require.NoError(b, err)
	defer from.Close()
	to.Handle(echoService, echo)
	for _, size := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			payload := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Call(b.Context(), from, "b", echoService, payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
