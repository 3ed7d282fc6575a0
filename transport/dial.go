package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// connectTimeout bounds dialing, TLS and greeting together.
const connectTimeout = 3 * time.Second

// dial connects to a node for a service.
func (t *TCP) dial(ctx context.Context, node string, svc Service) (net.Conn, error) {
	addr, err := t.book.find(node)
	if err != nil {
		return nil, err
	}
	conn, err := t.dialAt(ctx, addr, node, svc)
	if err != nil {
		t.book.failed(node, addr)
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	return conn, nil
}

func (t *TCP) dialAt(ctx context.Context, addr, node string, svc Service) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	d := net.Dialer{KeepAliveConfig: keepAlive}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	if t.cfg.TLS != nil {
		cfg := t.cfg.TLS.Clone()
		if cfg.ServerName == "" {
			cfg.ServerName, _, _ = net.SplitHostPort(addr) // dialing has taken it apart already
		}
		conn = tls.Client(conn, cfg)
	}
	theirs, err := greet(conn, svc, t.book.greeting(node))
	if err == nil && theirs.from != node {
		err = fmt.Errorf("node %q answers there", theirs.from)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	t.introduce(t.book.learn(theirs, conn.RemoteAddr()))
	return conn, nil
}

// introduce greets nodes that were not known before.
func (t *TCP) introduce(nodes []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, node := range nodes {
		if t.closed {
			return
		}
		t.wg.Go(func() { t.meet(node) })
	}
}

// meet greets a node, so that each knows where the other is and whom it knows.
func (t *TCP) meet(node string) {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		if conn, err := t.dial(t.life, node, 0); err == nil {
			_ = conn.Close() // all is said
			return
		}
		select {
		case <-t.life.Done():
			return
		case <-time.After(pause):
		}
	}
}
