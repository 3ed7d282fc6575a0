package consumer

import (
	"context"

	"github.com/quorumlog/quorumlog/record"
)

func (g *Group) join(ctx context.Context) error { return nil }

func (g *Group) leave(ctx context.Context) error { return nil }

func (g *Group) heartbeat(ctx context.Context) ([]record.TopicPartition, error) { return nil, nil }

func (g *Group) commit(ctx context.Context, c *claim, have record.Generation, offsets map[record.TopicPartition]record.Offset) error {
	return nil
}

// Committed returns the committed offsets of tps; those without one are absent.
func (g *Group) Committed(ctx context.Context, tps []record.TopicPartition) (map[record.TopicPartition]record.Offset, error) {
	return nil, nil
}

// retry does op again while its error may pass, until ctx ends.
func (g *Group) retry(ctx context.Context, op func() error) error {
	for {
		err := op()
		if err == nil || !mayPass(err) || ctx.Err() != nil {
			return err
		}
		g.logger.Warn("trying again", "err", err)
		if pause(ctx, g.cfg.HeartbeatInterval) != nil {
			return err
		}
	}
}
