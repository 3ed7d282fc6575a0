package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// Client is a node as one producer or one consumer uses it: it goes on to mean the
// topics it has asked for, though others may have their names by now. A client
// keeps what it knows of a topic (how many partitions, where it reads, what it has
// written), and none of that holds for another topic. Append is told the id. Its
// methods may be called at once.
type Client struct {
	*Node
	means means
}

// means are the ids of the topics that a client means by their names.
type means struct {
	mu  sync.Mutex
	ids map[string]record.TopicID
}

// Client returns a client that has not asked for any topic yet.
func (n *Node) Client() *Client {
	return &Client{Node: n, means: means{ids: map[string]record.TopicID{}}}
}

func (m *means) get(topic string) (id record.TopicID, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, ok = m.ids[topic]
	return id, ok
}

func (m *means) set(topic string, id record.TopicID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ids[topic] = id
}

type meansKey struct{}

// meansToo returns p, or *record.UnknownTopicError if the client whose ctx it is
// means another topic of the name.
func meansToo(ctx context.Context, p *partition) (*partition, error) {
	if m, ok := ctx.Value(meansKey{}).(*means); ok && m.another(p) {
		return nil, &record.UnknownTopicError{Topic: p.tp.Topic, Partition: -1}
	}
	return p, nil
}

// another reports whether a topic of another id is meant than p's.
func (m *means) another(p *partition) bool {
	id, ok := m.get(p.tp.Topic)
	return ok && id != p.key.topic
}

func (c *Client) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, meansKey{}, &c.means)
}

// Layout is Node.Layout. From now on the client means this topic.
func (c *Client) Layout(ctx context.Context, topic string) (record.TopicID, int, error) {
	id, count, err := c.Node.Layout(ctx, topic)
	if err == nil {
		c.means.set(topic, id)
	}
	return id, count, err
}

// Partitions is Node.Partitions. The client means the topic that it asked for
// first: *record.UnknownTopicError when that is gone.
func (c *Client) Partitions(ctx context.Context, topic string) (int, error) {
	if meant, ok := c.means.get(topic); ok {
		ctx, leave, err := c.enter(ctx)
		if err != nil {
			return 0, err
		}
		defer leave()
		t, err := c.lookUp(ctx, topic)
		if err == nil && t.ID != meant {
			err = &record.UnknownTopicError{Topic: topic, Partition: -1}
		}
		return t.Partitions(), err
	}
	_, count, err := c.Layout(ctx, topic)
	return count, err
}

// Fetch is Node.Fetch.
func (c *Client) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	if f, ok := c.fetchNow(ctx, &c.means, tp, from, maxBytes, iso); ok {
		return f, nil
	}
	return c.Node.Fetch(c.in(ctx), tp, from, maxBytes, iso)
}

// FetchNear is Node.FetchNear.
func (c *Client) FetchNear(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	return c.Node.FetchNear(c.in(ctx), tp, from, maxBytes, iso)
}

// Offsets is Node.Offsets.
func (c *Client) Offsets(ctx context.Context, tp record.TopicPartition, iso record.Isolation) (start, end record.Offset, err error) {
	return c.Node.Offsets(c.in(ctx), tp, iso)
}

// OffsetForTime is Node.OffsetForTime.
func (c *Client) OffsetForTime(ctx context.Context, tp record.TopicPartition, t time.Time) (record.Offset, bool, error) {
	return c.Node.OffsetForTime(c.in(ctx), tp, t)
}

// Group is Node.Group. Offsets are of the topics that the client means.
func (c *Client) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	return c.group(ctx, name, req, func(topic string) record.TopicID {
		if id, ok := c.means.get(topic); ok {
			return id
		}
		t, _ := c.folded(topic)
		return t.ID
	})
}
