package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quorumlog/quorumlog"
)

// Events are sent at a pace, so that there is something to see.
const (
	sendEvery  = 10 * time.Millisecond
	sendAtOnce = 20
)

// write sends events through one node. After half of them another node, the one
// that leads the most partitions, is killed; after three quarters it comes back.
func write(ctx context.Context, ns *nodes, members *members, events []event, say func(string, ...any)) error {
	if len(events) == 0 {
		return nil
	}
	ids, _, err := ns.byLeads(ctx, nodeIDs[0])
	if err != nil {
		return err
	}
	via := ids[len(ids)-1] // leads the fewest, so it is not the one to be killed
	p, err := ns.get(via).Producer(quorumlog.ProducerConfig{})
	if err != nil {
		return err
	}
	say("producing goes through node %s", via)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	half, later := make(chan struct{}), make(chan struct{})
	over := make(chan error, 1)
	go func() {
		err := failover(ctx, ns, members, via, half, later, say)
		if err != nil {
			cancel()
		}
		over <- err
	}()
	err = send(ctx, p, events, map[int]chan struct{}{len(events) / 2: half, len(events)*3/4 + 1: later}, say)
	if err != nil {
		cancel()
	}
	return errors.Join(<-over, err, p.Close(ctx))
}

// send sends all events and waits for their results. It closes a channel of
// marks before the event of that index.
func send(ctx context.Context, p *quorumlog.Producer, events []event, marks map[int]chan struct{}, say func(string, ...any)) error {
	var written, again atomic.Int64
	failed := make(chan error, 1)
	done := func(r quorumlog.Result, err error) {
		if err != nil {
			select {
			case failed <- err:
			default: // one is enough
			}
			return
		}
		written.Add(1)
		if r.Duplicate {
			again.Add(1)
		}
	}
	pace := time.NewTicker(sendEvery)
	defer pace.Stop()
	for i, e := range events {
		if i%sendAtOnce == 0 {
			select {
			case <-pace.C:
			case err := <-failed:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if mark := marks[i]; mark != nil {
			close(mark)
			delete(marks, i)
		}
		p.SendAsync(ctx, e.record(), done)
	}
	for _, mark := range marks { // fewer events than marks
		close(mark)
	}
	if err := p.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
	}
	say("%d events are acknowledged; %d of them were sent again and found to be written already", written.Load(), again.Load())
	return nil
}

// failover kills the leader of the most partitions, except node via, when half
// is closed, and opens it again when later is closed.
func failover(ctx context.Context, ns *nodes, members *members, via string, half, later <-chan struct{}, say func(string, ...any)) error {
	if err := await(ctx, half); err != nil {
		return err
	}
	ids, leads, err := ns.byLeads(ctx, via)
	if err != nil {
		return err
	}
	victim := ids[0]
	if victim == via {
		victim = ids[1]
	}
	if err := members.leave(ctx, victim); err != nil {
		return err
	}
	say("half is sent: node %s, which leads %d of %d partitions, is cut off and stopped", victim, leads[victim], partitions)
	if err := ns.kill(victim); err != nil {
		return fmt.Errorf("stop node %s: %w", victim, err)
	}
	say("node %s is down", victim)
	if err := await(ctx, later); err != nil {
		return err
	}
	if err := ns.restart(victim); err != nil {
		return fmt.Errorf("restart node %s: %w", victim, err)
	}
	say("node %s is back", victim)
	return nil
}

func await(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
