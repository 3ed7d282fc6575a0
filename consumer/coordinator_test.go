package consumer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// fault may hold a request up, or refuse it.
type fault func(ctx context.Context, req group.Request) error

// coordinator is a Coordinator of one group, in memory: the rules that package
// group states for answers, with the simplest assignment.
type coordinator struct {
	src memory

	mu         sync.Mutex
	generation record.Generation
	members    map[string]*member
	owners     map[record.TopicPartition]string
	offsets    map[record.TopicPartition]record.Offset
	fault      fault // asked before each request is looked at
}

type member struct {
	topics  []string
	timeout time.Duration
	heard   time.Time
	client  string
}

func newCoordinator(src memory) *coordinator {
	return &coordinator{
		src:     src,
		members: make(map[string]*member),
		owners:  make(map[record.TopicPartition]string),
		offsets: make(map[record.TopicPartition]record.Offset),
	}
}

// setFault makes the coordinator ask f before each request.
func (c *coordinator) setFault(f fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

func (c *coordinator) committed(tp record.TopicPartition) record.Offset {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o, ok := c.offsets[tp]; ok {
		return o
	}
	return record.NoOffset
}

func (c *coordinator) Group(ctx context.Context, _ string, req group.Request) (group.Response, error) {
	if err := ctx.Err(); err != nil {
		return group.Response{}, err
	}
	c.mu.Lock()
	f := c.fault
	c.mu.Unlock()
	if f != nil {
		if err := f(ctx, req); err != nil {
			return group.Response{}, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	resp := group.Response{}
	m := c.members[req.Member]
	switch req.Op {
	case group.OpJoin:
		if m == nil {
			m = &member{topics: req.Topics, timeout: req.SessionTimeout, client: req.Client}
			c.members[req.Member] = m
			c.generation++
		}
	case group.OpCommitted:
		for _, tp := range req.Partitions {
			o, ok := c.offsets[tp]
			if !ok {
				o = record.NoOffset
			}
			resp.Offsets = append(resp.Offsets, group.Offset{TopicPartition: tp, Offset: o})
		}
		return resp, nil
	default:
		if m == nil {
			return resp, &record.FencedError{What: "member " + req.Member}
		}
	}
	m.heard = time.Now()
	switch req.Op {
	case group.OpLeave:
		c.remove(req.Member)
		return resp, nil
	case group.OpHeartbeat:
		if req.Generation == c.generation {
			for tp, owner := range c.owners {
				if owner == req.Member && c.target(tp) != req.Member && !slices.Contains(req.Owned, tp) {
					delete(c.owners, tp)
				}
			}
		}
	case group.OpCommit:
		for _, o := range req.Offsets {
			if c.owners[o.TopicPartition] != req.Member {
				return resp, &record.FencedError{What: fmt.Sprintf("member %s in %v", req.Member, o.TopicPartition)}
			}
		}
		for _, o := range req.Offsets {
			if req.Rewind || o.Offset > c.offsets[o.TopicPartition] {
				c.offsets[o.TopicPartition] = o.Offset
			}
		}
	}
	for topic, partitions := range c.src {
		for p := range partitions {
			tp := record.TopicPartition{Topic: topic, Partition: int32(p)}
			if c.target(tp) != req.Member {
				continue
			}
			if c.owners[tp] == "" {
				c.owners[tp] = req.Member
			}
			if c.owners[tp] == req.Member {
				resp.Assigned = append(resp.Assigned, tp)
			}
		}
	}
	slices.SortFunc(resp.Assigned, record.TopicPartition.Compare)
	resp.Generation = c.generation
	return resp, nil
}

// target is who should own tp: the members by the order of their client ids
// take turns.
func (c *coordinator) target(tp record.TopicPartition) string {
	ids := slices.SortedFunc(maps.Keys(c.members), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.members[a].client, c.members[b].client), cmp.Compare(a, b))
	})
	ids = slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(c.members[id].topics, tp.Topic) })
	if len(ids) == 0 {
		return ""
	}
	return ids[int(tp.Partition)%len(ids)]
}

func (c *coordinator) expire() {
	for id, m := range c.members {
		if time.Since(m.heard) >= m.timeout {
			c.remove(id)
		}
	}
}

func (c *coordinator) remove(id string) {
	delete(c.members, id)
	maps.DeleteFunc(c.owners, func(_ record.TopicPartition, owner string) bool { return owner == id })
	c.generation++
}

// counting counts the commits.
type counting struct {
	Coordinator
	commits *int
}

func (c counting) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	if req.Op == group.OpCommit {
		*c.commits++
	}
	return c.Coordinator.Group(ctx, name, req)
}
