package torture

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/internal/relay"
	"github.com/quorumlog/quorumlog/transport"
)

// network is what connects the machines. Faults are as those of transport.Network.
type network interface {
	Join(id string) (transport.Endpoint, error)
	Cut(a, b string)
	CutOneWay(from, to string)
	Isolate(id string)
	Pause(id string)
	Resume(id string)
	Delay(from, to string, d time.Duration)
	Drop(from, to string, rate float64)
	Heal()
	Close() error
}

func newNetwork(cfg Config, ids []string) (network, error) {
	if cfg.TCP {
		return newWires(cfg.Seed, ids)
	}
	n := transport.NewNetwork()
	n.SetSeed(cfg.Seed)
	return inProcess{n}, nil
}

// inProcess has nothing to close.
type inProcess struct{ *transport.Network }

func (inProcess) Close() error { return nil }

// way is the direction of what one machine sends to another: requests, and answers
// to requests that came the other way.
type way struct{ from, to string }

// wires is a network of sockets: a relay for each machine and each that it connects
// to. What a fault swallows in transport.Network waits here, as TCP sends it again;
// connections may break when it is healed. A lost message is a broken connection.
type wires struct {
	relays map[way]*relay.Relay // from is who connects
	dead   *relay.Relay         // where machines say that they are, so that nobody goes around relays

	mu       sync.Mutex
	rng      *rand.Rand
	cut      map[way]bool
	isolated map[string]bool
	paused   map[string]bool
}

func newWires(seed uint64, ids []string) (_ *wires, err error) {
	w := &wires{relays: map[way]*relay.Relay{}, rng: rand.New(rand.NewPCG(seed, 2)), cut: map[way]bool{}, isolated: map[string]bool{}, paused: map[string]bool{}}
	if w.dead, err = relay.Listen(); err != nil {
		return nil, err
	}
	w.dead.Target("")
	for _, from := range ids {
		for _, to := range ids {
			if from == to {
				continue
			}
			r, err := relay.Listen()
			if err != nil {
				return nil, errors.Join(err, w.Close())
			}
			r.Target("")
			w.relays[way{from, to}] = r
		}
	}
	return w, nil
}

// Join lets a machine listen, and the others find it.
func (w *wires) Join(id string) (transport.Endpoint, error) {
	peers := map[string]string{id: w.dead.Addr()}
	for way, r := range w.relays {
		if way.from == id {
			peers[way.to] = r.Addr()
		}
	}
	e, err := transport.ListenTCP(transport.TCPConfig{ID: id, Peers: peers})
	if err != nil {
		return nil, err
	}
	w.target(id, e.Addr().String())
	return leaving{e, w}, nil
}

func (w *wires) target(id, addr string) {
	for way, r := range w.relays {
		if way.to == id {
			r.Target(addr)
		}
	}
}

// leaving is an endpoint whose machine is not found any more when it has closed.
type leaving struct {
	*transport.TCP
	wires *wires
}

func (l leaving) Close() error {
	l.wires.target(l.ID(), "")
	return l.TCP.Close()
}

func (w *wires) Cut(a, b string) {
	w.change(func() { w.cut[way{a, b}], w.cut[way{b, a}] = true, true })
}

func (w *wires) CutOneWay(from, to string) { w.change(func() { w.cut[way{from, to}] = true }) }

func (w *wires) Isolate(id string) { w.change(func() { w.isolated[id] = true }) }

func (w *wires) Pause(id string) { w.change(func() { w.paused[id] = true }) }

func (w *wires) Resume(id string) { w.change(func() { delete(w.paused, id) }) }

func (w *wires) Delay(from, to string, d time.Duration) {
	w.both(way{from, to}, func(r *relay.Relay, s relay.Side) { r.Delay(s, d) })
}

func (w *wires) Drop(from, to string, rate float64) {
	w.both(way{from, to}, func(r *relay.Relay, s relay.Side) { r.Tear(s, rate/10) })
}

func (w *wires) Heal() {
	w.change(func() {
		clear(w.cut)
		clear(w.isolated)
		clear(w.paused)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.relays {
		if w.rng.IntN(2) == 0 {
			r.Break()
		}
		r.Heal()
	}
}

// change changes who is cut off, and holds what that concerns.
func (w *wires) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	for v := range w.relays {
		held := w.cut[v] || w.isolated[v.from] || w.isolated[v.to] || w.paused[v.from] || w.paused[v.to]
		w.both(v, func(r *relay.Relay, s relay.Side) { r.Cut(s, held) })
	}
}

// both does something with both relays that carry what from sends to to.
func (w *wires) both(v way, f func(r *relay.Relay, s relay.Side)) {
	f(w.relays[v], relay.To)
	f(w.relays[way{v.to, v.from}], relay.Back)
}

// Close ends all relays. The machines have left.
func (w *wires) Close() error {
	errs := []error{w.dead.Close()}
	for _, r := range w.relays {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
