package replica

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/record"
)

// Requests to append nothing, heartbeats above all, make up all the traffic of
// a quiet group, and there may be a thousand groups between two nodes. So those
// of all groups from one node to another travel together, and their answers do
// too: a beat message goes at once if the last one is long enough ago, else
// when it is. Messages grow with pairs of nodes, not with groups.
//
// Each request is still answered by its own group, and an answer waits for no
// other group's: the reply to a beat message holds what could be answered on
// the spot, in particular heartbeats of the term a follower is in already;
// later answers go with the next beat message the other way.
//
// The bytes, big-endian:
//
//	beats:   20 zero bytes (no group) | kind u8 | requests u32 | requests × (id u64 | group 20 bytes | length u32 | append) | answers
//	answers: count u32 | count × (id u64 | length u32 | answer; nothing if there is none)

// outbox holds what goes to one node with the next beat message. It owns no
// goroutine.
type outbox struct {
	mux  *Mux
	node string

	mu       sync.Mutex // guards what follows; not held while something is sent
	requests []byte
	ids      []uint64 // of the requests
	answers  []byte
	answered uint32 // how many answers
	sent     time.Time
	due      time.Time   // when the timer fires; zero while it is not set
	timer    *time.Timer // nil until there was something to wait for
	waiting  map[uint64]chan<- []byte
	nextID   uint64
}

func newOutbox(m *Mux, node string) *outbox {
	// Ids differ from those of this node's earlier life: an answer may be late.
	return &outbox{mux: m, node: node, waiting: map[uint64]chan<- []byte{}, nextID: rand.Uint64()}
}

// outbox returns the outbox of a node.
func (m *Mux) outbox(node string) *outbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.outboxes[node]
	if o == nil {
		o = newOutbox(m, node)
		m.outboxes[node] = o
	}
	return o
}

// ask sends one request without entries and waits for its answer until ctx ends.
func (o *outbox) ask(ctx context.Context, group groupID, req []byte, every time.Duration) ([]byte, error) {
	ch := make(chan []byte, 1)
	o.mu.Lock()
	o.nextID++
	id := o.nextID
	o.waiting[id] = ch
	o.ids = append(o.ids, id)
	o.requests = binary.BigEndian.AppendUint64(o.requests, id)
	o.requests = append(o.requests, group[:]...)
	o.requests = binary.BigEndian.AppendUint32(o.requests, uint32(len(req)))
	o.requests = append(o.requests, req...)
	o.flushOrWait(every)
	select {
	case resp := <-ch:
		if len(resp) == 0 {
			return nil, record.ErrUnreachable
		}
		return resp, nil
	case <-ctx.Done():
		o.mu.Lock()
		delete(o.waiting, id)
		o.mu.Unlock()
		return nil, ctx.Err()
	}
}

// answer sends a late answer.
func (o *outbox) answer(id uint64, resp []byte, every time.Duration) {
	o.mu.Lock()
	o.answers = putBeatAnswer(o.answers, id, resp)
	o.answered++
	o.flushOrWait(every)
}

// flushOrWait sends what there is if the last message went more than every ago,
// else sets the timer. o.mu is held, and is not afterwards.
func (o *outbox) flushOrWait(every time.Duration) {
	now := time.Now()
	due := o.sent.Add(every)
	if !now.Before(due) {
		o.flush(now)
		return
	}
	defer o.mu.Unlock()
	if !o.due.IsZero() && !due.Before(o.due) {
		return
	}
	o.due = due
	if o.timer == nil {
		o.timer = time.AfterFunc(due.Sub(now), o.tick)
		return
	}
	o.timer.Reset(due.Sub(now))
}

// tick is what the timer does.
func (o *outbox) tick() {
	o.mu.Lock()
	o.due = time.Time{}
	if len(o.ids) == 0 && o.answered == 0 { // somebody was faster
		o.mu.Unlock()
		return
	}
	o.flush(time.Now())
}

// flush sends what there is. o.mu is held, and is not afterwards.
func (o *outbox) flush(now time.Time) {
	ids := o.ids
	head := make([]byte, groupIDSize, groupIDSize+1+4)
	head = append(head, byte(rpcBeats))
	head = binary.BigEndian.AppendUint32(head, uint32(len(ids)))
	bufs := [][]byte{head, o.requests, binary.BigEndian.AppendUint32(nil, o.answered), o.answers}
	o.requests, o.ids, o.answers, o.answered = nil, nil, nil, 0
	o.sent = now
	o.mu.Unlock()
	ctx, cancel := context.WithTimeout(o.mux.life, beatTimeout)
	o.mux.endpoint.Send(ctx, o.node, o.mux.service, bufs, func(resp []byte, err error) {
		cancel()
		if err == nil {
			err = o.take(resp)
		}
		if err != nil { // nobody needs to wait for the timeout of each
			for _, id := range ids {
				o.deliver(id, nil)
			}
		}
	})
}

// beatTimeout is how long the reply to a beat message may take. It bounds
// nothing but the memory for it: each request has its own timeout.
const beatTimeout = 10 * time.Second

// take hands answers to those who wait for them.
func (o *outbox) take(answers []byte) error {
	d := decoder{b: answers}
	for n := d.u32(); n > 0 && d.err == nil; n-- {
		id := d.u64()
		if resp := d.take(int(d.u32())); d.err == nil {
			o.deliver(id, resp)
		}
	}
	return d.end()
}

// deliver ends one wait, if it is not over yet.
func (o *outbox) deliver(id uint64, resp []byte) {
	o.mu.Lock()
	ch := o.waiting[id]
	delete(o.waiting, id)
	o.mu.Unlock()
	if ch != nil {
		ch <- resp // has room for the only answer
	}
}

func putBeatAnswer(b []byte, id uint64, resp []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, id)
	b = binary.BigEndian.AppendUint32(b, uint32(len(resp)))
	return append(b, resp...)
}

// spot collects the answers that come while a beat message is being served.
type spot struct {
	mu    sync.Mutex
	over  bool
	b     []byte
	count uint32
}

// add reports whether the answer was in time.
func (s *spot) add(id uint64, resp []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.b = putBeatAnswer(s.b, id, resp)
		s.count++
	}
	return !s.over
}

// end returns the answers; the later ones are not in time.
func (s *spot) end() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return [][]byte{binary.BigEndian.AppendUint32(nil, s.count), s.b}
}

// serveBeats serves a beat message. It runs in a goroutine of its own, which
// Raft may end when the vote file fails.
func (m *Mux) serveBeats(from string, body []byte, reply func([][]byte, error)) {
	var now spot
	defer func() { reply(now.end(), nil) }()
	back := m.outbox(from)
	d := decoder{b: body}
	for n := d.u32(); n > 0 && d.err == nil; n-- {
		id, group := d.u64(), d.group()
		req := d.take(int(d.u32()))
		if d.err != nil {
			return
		}
		if t := m.group(group); t == nil {
			now.add(id, nil)
			if m.watch.asleep(group, from) {
				go m.rouse(group) // the next one finds it awake
			}
		} else {
			t.serve(t.ctx, rpcAppend, req, nil, func(resp [][]byte, err error) {
				var b []byte
				if err == nil {
					b = resp[0]
				}
				if !now.add(id, b) {
					back.answer(id, b, t.beatEvery)
				}
			})
		}
	}
	if d.err == nil {
		_ = back.take(d.b) // a request without its answer times out
	}
}

// isHeartbeat tells Raft's heartbeats, which say nothing of the log, from other
// requests.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.Term != 0 && req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}
