package consumer

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// carrier is a Mover over topics in memory, which are all there before members
// join, so that it need not write to the map that they read.
type carrier struct {
	memory
	mu   sync.Mutex
	fail func(r record.Record) error // asked before each Send
	then func(r record.Record)       // called after each Send
}

func (c *carrier) EnsureTopic(_ context.Context, name string, _ int) error {
	if c.memory[name] == nil {
		return &record.UnknownTopicError{Topic: name, Partition: -1}
	}
	return nil
}

func (c *carrier) HasTopic(name string) bool { return c.memory[name] != nil }

func (c *carrier) Send(_ context.Context, r record.Record) (record.TopicPartition, record.Offset, error) {
	c.mu.Lock()
	fail, then := c.fail, c.then
	c.mu.Unlock()
	if fail != nil {
		if err := fail(r); err != nil {
			return record.TopicPartition{}, record.NoOffset, err
		}
	}
	h := fnv.New32a()
	_, _ = h.Write(r.Key)
	p := c.memory[r.Topic][int(h.Sum32())%len(c.memory[r.Topic])]
	var b record.Builder
	if err := b.Append(&r); err != nil {
		return record.TopicPartition{}, record.NoOffset, err
	}
	out, err := b.Build(record.BatchOptions{})
	if err != nil {
		return record.TopicPartition{}, record.NoOffset, err
	}
	at := p.append(out)
	if then != nil {
		then(r)
	}
	return p.tp, at, nil
}

// newRetryWorld has the topics of stages for the group "billing" as well.
func newRetryWorld(t *testing.T, partitions, stages int) (*world, *carrier) {
	w := newWorld(t, partitions)
	add := func(topic string, n int) {
		w.memory[topic] = newMemory(topic, n)[topic]
	}
	for i := range stages {
		add(stageTopic("billing", i+1), partitions)
	}
	add(redriveTopic("billing"), 1)
	add(DeadLetterTopic("billing"), 1)
	return w, &carrier{memory: w.memory}
}

// letters returns the group's dead letters as "value: reason".
func letters(t *testing.T, c *carrier) (all []string) {
	for l, err := range NewDeadLetters(c.memory, c, "billing").List(t.Context()) {
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%s: %s", l.Value, l.Failure.Reason))
	}
	return all
}

// log is what happened, and when.
type diary struct {
	mu    sync.Mutex
	start time.Time
	lines []string
}

func newDiary() *diary { return &diary{start: time.Now()} }

func (d *diary) note(r record.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%v %s", time.Since(d.start).Round(time.Millisecond), r.Value))
}

func (d *diary) text() string { return strings.Join(d.noted(), ", ") }

func (d *diary) noted() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

var errBusy = errors.New("busy")

func TestRetryInPlaceWaitsLongerEachTimeAndOtherPartitionsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 2, 0)
		w.fill(t, "orders", 3, 3)
		d := [2]*diary{newDiary(), newDiary()}
		tries := 0
		m := w.live(Config{Mover: c, Retry: RetryPolicy{InPlace: 4, Backoff: time.Second, MaxBackoff: 3 * time.Second}}, func(_ *mortal, r record.Record) error {
			d[r.Partition].note(r)
			if string(r.Value) == "0:1" {
				if tries++; tries < 5 {
					return errBusy
				}
			}
			return nil
		})
		time.Sleep(time.Minute)
		require.Equal(t, "0s 0:0, 0s 0:1, 1s 0:1, 3s 0:1, 6s 0:1, 9s 0:1, 9s 0:2", d[0].text())
		require.Equal(t, "0s 1:0, 0s 1:1, 0s 1:2", d[1].text())
		require.Empty(t, letters(t, c))
		require.Equal(t, record.Offset(3), w.committed(orders(0)))
		w.close(m.Group)
	})
}

func TestRetryTopicsWithGrowingDelaysEndInTheDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 1, 2)
		w.fill(t, "orders", 3, 3)
		began := time.Now()
		d := newDiary()
		m := w.live(Config{Mover: c, Retry: RetryPolicy{InPlace: 1, Backoff: time.Second, Delays: []time.Duration{time.Minute, time.Hour}}}, func(_ *mortal, r record.Record) error {
			d.note(r)
			if string(r.Value) == "0:1" {
				require.Equal(t, orders(0), r.TopicPartition(), "as it was at its origin")
				require.Equal(t, record.Offset(1), r.Offset)
				require.Equal(t, time.UnixMilli(1), r.Time)
				return errBusy
			}
			return nil
		})
		time.Sleep(2 * time.Hour)
		w.close(m.Group)
		require.Equal(t, "0s 0:0, 0s 0:1, 1s 0:1, 1s 0:2, 1m1s 0:1, 1m2s 0:1, 1h1m2s 0:1, 1h1m3s 0:1", d.text())
		require.Equal(t, record.Offset(3), w.committed(orders(0)))
		n := 0
		for l, err := range NewDeadLetters(c.memory, c, "billing").List(t.Context()) {
			require.NoError(t, err)
			n++
			require.Equal(t, "0:1", string(l.Value))
			require.Equal(t, "0:1", string(l.Key))
			require.WithinDuration(t, began, l.Failure.First, 100*time.Millisecond)
			require.WithinDuration(t, began.Add(time.Hour+time.Minute+3*time.Second), l.Failure.Last, 100*time.Millisecond)
			l.Failure.First, l.Failure.Last = time.Time{}, time.Time{}
			require.Equal(t, Failure{
				Group: "billing", Origin: orders(0), Offset: 1, Time: time.UnixMilli(1),
				Cause: CauseError, Reason: "busy", Attempts: 6,
			}, l.Failure)
		}
		require.Equal(t, 1, n)
	})
}

func TestPermanentErrorsPanicsAndWhatTheClassifierSaysGoStraightToTheDeadLetters(t *testing.T) {
	errBad := errors.New("bad input")
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 1, 1)
		w.fill(t, "orders", 4, 4)
		d := newDiary()
		m := w.live(Config{Mover: c, Retry: RetryPolicy{
			InPlace: 3, Delays: []time.Duration{time.Minute},
			Classify: func(err error) Action {
				if errors.Is(err, errBad) {
					return DeadLetter
				}
				return Retry
			},
		}}, func(_ *mortal, r record.Record) error {
			d.note(r)
			switch r.Offset {
			case 0:
				return Permanent(fmt.Errorf("no account: %w", errBusy))
			case 1:
				panic("index out of range")
			case 2:
				return errBad
			}
			return nil
		})
		time.Sleep(time.Hour)
		require.Equal(t, "0s 0:0, 0s 0:1, 0s 0:2, 0s 0:3", d.text())
		require.Equal(t, []string{
			"0:0: no account: busy",
			"0:1: orders/0: handler panicked at offset 1: index out of range",
			"0:2: bad input",
		}, letters(t, c))
		require.Equal(t, record.Offset(4), w.committed(orders(0)))
		w.close(m.Group)
	})
	require.NoError(t, Permanent(nil))
	require.ErrorIs(t, Permanent(errBusy), errBusy)
}

func TestTheClassifierMayStopTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 1, 0)
		w.fill(t, "orders", 4, 4)
		g := w.join("a", Config{Mover: c, Retry: RetryPolicy{InPlace: 3, Classify: func(error) Action { return Stop }}})
		_, err := runUntil(t.Context(), g, "0:2", func() error { return errBusy })
		require.ErrorIs(t, err, errBusy)
		require.Equal(t, record.Offset(2), w.committed(orders(0)))
		require.Empty(t, letters(t, c))
		w.close(g)
	})
}

func TestAHandlerThatCtxStopsHasNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 1, 0)
		w.fill(t, "orders", 1, 1)
		g := w.join("a", Config{Mover: c, Retry: RetryPolicy{DeadLetters: true}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.Run(ctx, func(ctx context.Context, r record.Record) error {
			<-ctx.Done()
			return Permanent(ctx.Err())
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, letters(t, c))
		require.Equal(t, record.NoOffset, w.committed(orders(0)))
		w.close(g)
	})
}

func TestAMoveThatFailsForAMomentIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 1, 0)
		w.fill(t, "orders", 2, 2)
		fails := 0
		c.fail = func(record.Record) error {
			if fails++; fails <= 3 {
				return record.ErrUnreachable
			}
			return nil
		}
		m := w.live(Config{Mover: c, Retry: RetryPolicy{DeadLetters: true}}, func(_ *mortal, r record.Record) error {
			if r.Offset == 0 {
				return errBusy
			}
			return nil
		})
		time.Sleep(time.Minute)
		require.Equal(t, []string{"0:0: busy"}, letters(t, c))
		require.Equal(t, record.Offset(2), w.committed(orders(0)))
		w.close(m.Group)
	})
}

func TestAMoveThatCannotBeDoneEndsTheRunAndLeavesTheRecord(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		took time.Duration
	}{
		"for good":         {&record.TooLargeError{What: "record"}, 0},
		"until the end":    {record.ErrUnreachable, moveTimeout},
		"a closed cluster": {fmt.Errorf("node: %w", record.ErrClosed), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, m := newRetryWorld(t, 1, 0)
				w.fill(t, "orders", 2, 2)
				m.fail = func(record.Record) error { return c.err }
				g := w.join("a", Config{Mover: m, Retry: RetryPolicy{DeadLetters: true}})
				start := time.Now()
				err := g.Run(t.Context(), func(context.Context, record.Record) error { return errBusy })
				require.ErrorIs(t, err, c.err)
				require.ErrorContains(t, err, "billing.dlq")
				require.Equal(t, c.took, time.Since(start))
				require.Equal(t, record.NoOffset, w.committed(orders(0)))
				w.close(g)
			})
		})
	}
}

// A record is appended where it goes before it is committed where it was, so a
// crash in between repeats the move and loses nothing.
func TestDeathBetweenTheMoveAndTheCommitRepeatsTheMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 1, 0)
		w.fill(t, "orders", 2, 2)
		handle := func(_ *mortal, r record.Record) error {
			if r.Offset == 0 {
				return errBusy
			}
			return nil
		}
		cfg := Config{Mover: c, Retry: RetryPolicy{DeadLetters: true}}
		ready := make(chan *mortal, 1)
		c.then = func(record.Record) { (<-ready).die() }
		m := w.live(cfg, handle)
		ready <- m
		require.Error(t, <-m.ended)
		require.Equal(t, record.NoOffset, w.committed(orders(0)))
		c.mu.Lock()
		c.then = nil
		c.mu.Unlock()
		time.Sleep(11 * time.Second)
		next := w.live(cfg, handle)
		settle()
		require.Equal(t, []string{"0:0: busy", "0:0: busy"}, letters(t, c))
		require.Equal(t, record.Offset(2), w.committed(orders(0)))
		w.close(next.Group)
	})
}

func TestDeadLettersAreListedRedrivenAndDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 1, 0)
		w.fill(t, "orders", 6, 6)
		mended := false
		var mu sync.Mutex
		var handled []string
		m := w.live(Config{Mover: c, Retry: RetryPolicy{DeadLetters: true}}, func(_ *mortal, r record.Record) error {
			mu.Lock()
			defer mu.Unlock()
			if !mended && r.Offset%2 == 0 {
				return errBusy
			}
			if f, ok := FailureOf(r); ok {
				require.Equal(t, CauseRedrive, f.Cause)
				require.Equal(t, "busy", f.Reason)
			}
			handled = append(handled, string(r.Value))
			return nil
		})
		settle()
		dead := NewDeadLetters(c.memory, c, "billing")
		require.Equal(t, []string{"0:0: busy", "0:2: busy", "0:4: busy"}, letters(t, c))

		n, err := dead.Drop(t.Context(), func(l Letter) bool { return l.Failure.Offset == 2 })
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []string{"0:0: busy", "0:4: busy"}, letters(t, c))

		mu.Lock()
		mended = true
		mu.Unlock()
		n, err = dead.Redrive(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		settle()
		require.Empty(t, letters(t, c))
		w.close(m.Group)
		require.Equal(t, []string{"0:1", "0:3", "0:5", "0:0", "0:4"}, handled)
	})
}

func TestARedrivenRecordThatFailsAgainIsADeadLetterAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 1, 0)
		w.fill(t, "orders", 1, 1)
		m := w.live(Config{Mover: c, Retry: RetryPolicy{InPlace: 1}}, func(*mortal, record.Record) error { return errBusy })
		settle()
		for range 3 {
			n, err := NewDeadLetters(c.memory, c, "billing").Redrive(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			settle()
			require.Equal(t, []string{"0:0: busy"}, letters(t, c))
		}
		for l := range NewDeadLetters(c.memory, c, "billing").List(t.Context()) {
			require.Equal(t, orders(0), l.Failure.Origin)
			require.Equal(t, 2, l.Failure.Attempts, "since it was sent back")
		}
		w.close(m.Group)
	})
}

func TestStagesOfALongerPolicyAreReadOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 1, 3)
		f := Failure{Group: "billing", Origin: orders(0), Cause: CauseError, Due: time.Now().Add(time.Hour)}
		_, _, err := c.Send(t.Context(), f.put(record.Record{Value: []byte("left behind")}, stageTopic("billing", 3), time.Now()))
		require.NoError(t, err)
		d := newDiary()
		m := w.live(Config{Mover: c, Retry: RetryPolicy{Delays: []time.Duration{time.Second}}}, func(_ *mortal, r record.Record) error {
			d.note(r)
			return errBusy
		})
		time.Sleep(2 * time.Hour)
		require.Equal(t, "1h0m0s left behind", d.text())
		require.Equal(t, []string{"left behind: busy"}, letters(t, c))
		w.close(m.Group)
	})
}

func TestRetryPoliciesThatMakeNoSenseAreRefused(t *testing.T) {
	for name, p := range map[string]RetryPolicy{
		"Retry.InPlace":  {InPlace: -1, DeadLetters: true},
		"Retry.Backoff":  {InPlace: 1, Backoff: time.Minute, MaxBackoff: time.Second},
		"Retry.Delays":   {Delays: []time.Duration{time.Minute, time.Second}},
		"Retry.KeyOrder": {KeyOrder: true},
	} {
		err := Config{Retry: p, Mover: &carrier{}}.Validate()
		require.ErrorIs(t, err, record.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	require.ErrorContains(t, Config{Retry: RetryPolicy{InPlace: 1}}.Validate(), "Mover")
}
