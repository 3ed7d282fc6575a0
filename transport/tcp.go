package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// TCPConfig says where a node listens and where the others are. ID is required.
type TCPConfig struct {
	ID     string
	Listen string // address, as ":7400"; default a free port of 127.0.0.1
	// Peers are the addresses of nodes by id, those that are known in advance.
	// That of ID itself is where the others reach this node; default is what it
	// listens on. Nodes tell each other the addresses they know when they
	// connect, so one that joins needs to know one, and nobody needs to know it. A
	// node that is not where Peers say is looked for where it says itself.
	Peers map[string]string
	// TLS secures all connections, in both directions. Its ClientAuth must be
	// tls.RequireAndVerifyClientCert: whoever may connect may do anything.
	TLS *tls.Config
	// Insecure allows to listen beyond this machine without TLS, or with one that
	// does not verify clients.
	Insecure bool
	Logger   *slog.Logger // default silent
}

// Validate reports everything that is wrong with c.
func (c TCPConfig) Validate() error {
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.ID == "", "the node has no id")
	bad(len(c.ID) > maxName, "an id of %d bytes is too long, %d is the most", len(c.ID), maxName)
	for id, addr := range c.Peers {
		_, port, err := net.SplitHostPort(addr)
		bad(err != nil, "address %q of node %q: %w", addr, id, err)
		bad(err == nil && (port == "" || port == "0"), "address %q of node %q has no port", addr, id)
	}
	if c.Listen != "" {
		host, _, err := net.SplitHostPort(c.Listen)
		bad(err != nil, "Listen %q: %w", c.Listen, err)
		if err == nil && !c.Insecure && !loopback(host) {
			bad(c.TLS == nil, "Listen %q can be reached from other machines, but TLS is nil; set it, or Insecure if the network keeps others out", c.Listen)
			bad(c.TLS != nil && c.TLS.ClientAuth != tls.RequireAndVerifyClientCert,
				"TLS does not verify clients, and whoever connects may read and write everything; set ClientAuth to RequireAndVerifyClientCert, or Insecure")
		}
	}
	bad(c.TLS != nil && len(c.TLS.Certificates) == 0 && c.TLS.GetCertificate == nil && c.TLS.GetConfigForClient == nil, "TLS has no certificate")
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("transport: %w: %w", record.ErrInvalid, errors.Join(errs...))
}

// loopback reports whether only this machine reaches a host.
func loopback(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return host == "localhost"
}

// TCP is an [Endpoint] on a network of machines.
//
// To each node it needs it keeps one connection a service, over which its own
// requests go and their answers come back; so a long answer of one service holds
// up no other, and requests keep their order within a service. A request that
// finds no connection has one made. While a node cannot be reached requests to
// it fail at once with record.ErrUnreachable, and it is tried again at growing
// intervals, at most a second, when there is a request. A connection that is silent for
// 3 s although an answer is awaited is given up, as after a cut that nobody told of.
type TCP struct {
	cfg      TCPConfig
	listener net.Listener
	local    *endpoint // this node alone: holds the handlers, carries what a node sends to itself
	book     *addressBook
	logger   *slog.Logger

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	lanes  map[laneKey]*lane
	open   map[net.Conn]struct{} // connections that others have made
}

// ListenTCP begins to listen. The endpoint owns the goroutines of its
// connections; Close ends them.
func ListenTCP(cfg TCPConfig) (*TCP, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cmp.Or(cfg.Listen, "127.0.0.1:0"))
	if err != nil {
		return nil, fmt.Errorf("transport: node %q cannot listen: %w", cfg.ID, err)
	}
	local, err := NewNetwork().join(cfg.ID)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	t := &TCP{
		cfg: cfg, listener: l, local: local,
		book:   newAddressBook(cfg.ID, cmp.Or(cfg.Peers[cfg.ID], l.Addr().String()), cfg.Peers),
		logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		lanes:  map[laneKey]*lane{}, open: map[net.Conn]struct{}{},
	}
	t.life, t.end = context.WithCancel(context.Background())
	t.wg.Go(t.accept)
	t.wg.Go(t.watch)
	for id := range cfg.Peers {
		if id != cfg.ID {
			t.wg.Go(func() { t.meet(id) })
		}
	}
	return t, nil
}

// ID returns the node's name.
func (t *TCP) ID() string { return t.cfg.ID }

// Addr returns the address that the node listens on.
func (t *TCP) Addr() net.Addr { return t.listener.Addr() }

// Handle implements [Endpoint].
func (t *TCP) Handle(svc Service, h Handler) { t.local.Handle(svc, h) }

// Send implements [Endpoint].
func (t *TCP) Send(ctx context.Context, to string, svc Service, req [][]byte, done func([]byte, error)) {
	if to == t.cfg.ID {
		t.local.Send(ctx, to, svc, req, done)
		return
	}
	if err := ctx.Err(); err != nil {
		done(nil, err)
		return
	}
	l, err := t.lane(to, svc)
	if err != nil {
		done(nil, err)
		return
	}
	l.send(ctx, req, done)
}

// lane returns the lane to a node, which is made if need be.
func (t *TCP) lane(to string, svc Service) (*lane, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, t.closedError()
	}
	key := laneKey{to, svc}
	l := t.lanes[key]
	if l == nil {
		l = newLane(t, key)
		t.lanes[key] = l
	}
	return l, nil
}

func (t *TCP) closedError() error {
	return fmt.Errorf("%w: node %q has left the network", record.ErrClosed, t.cfg.ID)
}

// watchEvery is how often connections are looked at for silence.
const watchEvery = 500 * time.Millisecond

// watch gives up connections from which nothing comes any more.
func (t *TCP) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-t.life.Done():
			return
		case now := <-tick.C:
			t.mu.Lock()
			lanes := make([]*lane, 0, len(t.lanes))
			for _, l := range t.lanes {
				lanes = append(lanes, l)
			}
			t.mu.Unlock()
			for _, l := range lanes {
				l.look(now)
			}
		}
	}
}

// Close implements [Endpoint]. It returns when all its goroutines have ended.
func (t *TCP) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	lanes, open := t.lanes, t.open
	t.lanes, t.open = nil, nil
	t.mu.Unlock()

	t.end()
	err := t.listener.Close()
	_ = t.local.Close() // it has no resources, and returns no error
	for c := range open {
		_ = c.Close() // its reader has ended, or does now
	}
	for _, l := range lanes {
		l.close()
	}
	t.wg.Wait()
	return err
}
