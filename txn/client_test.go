package txn_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn"
	"github.com/quorumlog/quorumlog/txn/coordinator"
)

// script is a cluster that does as it is told.
type script struct {
	mu       sync.Mutex
	who      coordinator.Response
	requests []coordinator.Request
	batches  int
	// judge decides on a request, write on a batch; nil: all is well.
	judge func(ctx context.Context, req coordinator.Request) error
	write func(tp record.TopicPartition) error
}

func (s *script) Layout(context.Context, string) (record.TopicID, int, error) {
	return record.TopicID{1}, 3, nil
}

func (s *script) Append(_ context.Context, _ record.TopicID, tp record.TopicPartition, _ record.Batch, _ record.Acks, done func(record.Appended, error)) {
	s.mu.Lock()
	write := s.write
	s.mu.Unlock()
	var err error
	if write != nil {
		err = write(tp)
	}
	if err == nil {
		s.mu.Lock()
		s.batches++
		s.mu.Unlock()
	}
	go done(record.Appended{}, err)
}

func (s *script) NewProducer(context.Context, string) (record.ProducerID, record.ProducerEpoch, error) {
	return 0, 0, errors.New("not to be asked")
}

func (s *script) RenewProducer(context.Context, string, record.ProducerID, record.ProducerEpoch) (record.ProducerID, record.ProducerEpoch, error) {
	return 0, 0, errors.New("not to be asked")
}

func (s *script) Group(context.Context, string, group.Request) (group.Response, error) {
	return group.Response{}, nil
}

func (s *script) Transaction(ctx context.Context, _ string, req coordinator.Request) (coordinator.Response, error) {
	s.mu.Lock()
	s.requests = append(s.requests, req)
	judge := s.judge
	s.mu.Unlock()
	if judge != nil {
		if err := judge(ctx, req); err != nil {
			return coordinator.Response{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Op == coordinator.OpEnd {
		s.who.Epoch++
	}
	return s.who, nil
}

// ops returns what was asked for, and forgets it.
func (s *script) ops() (ops []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, req := range s.requests {
		op := string(req.Op)
		if req.Op == coordinator.OpEnd && req.Commit {
			op = "commit"
		}
		ops = append(ops, op)
	}
	s.requests = nil
	return ops
}

func (s *script) set(judge func(ctx context.Context, req coordinator.Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge = judge
}

// in runs a test in virtual time.
func in(t *testing.T, test func(t *testing.T, s *script, c *txn.Client)) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		c, err := txn.New(s, "x", txn.Config{})
		require.NoError(t, err)
		test(t, s, c)
		require.NoError(t, c.Close(context.Background()))
		require.NoError(t, c.Close(context.Background()), "again")
		require.ErrorIs(t, c.Do(context.Background(), sends(1)), record.ErrClosed)
	})
}

// sends returns a transaction that writes to n partitions.
func sends(n int) func(tx *txn.Tx) error {
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	return func(tx *txn.Tx) error {
		for _, k := range keys[:min(n*3, len(keys))] {
			if err := tx.Send(record.Record{Topic: "t", Key: []byte(k)}); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestACoordinatorIsAskedForNoMoreThanItMustKnow(t *testing.T) {
	in(t, func(t *testing.T, s *script, c *txn.Client) {
		require.NoError(t, c.Do(t.Context(), func(*txn.Tx) error { return nil }))
		require.Equal(t, []string{"take"}, s.ops())
		require.NoError(t, c.Do(t.Context(), sends(1)))
		ops := s.ops()
		require.Equal(t, "commit", ops[len(ops)-1])
		require.NotContains(t, ops, "take", "it knows its identity")
		boom := errors.New("boom")
		require.ErrorIs(t, c.Do(t.Context(), func(*txn.Tx) error { return boom }), boom)
		require.Empty(t, s.ops(), "nothing was sent")
	})
}

func TestPartitionsThatJoinMeanwhileGoWithOneRequest(t *testing.T) {
	in(t, func(t *testing.T, s *script, c *txn.Client) {
		s.set(func(ctx context.Context, req coordinator.Request) error {
			if req.Op == coordinator.OpAdd {
				wait(ctx, time.Second)
			}
			return nil
		})
		require.NoError(t, c.Do(t.Context(), sends(3)))
		require.LessOrEqual(t, len(s.ops()), 4, "take, the first one, the others, commit")
	})
}

func TestAFailedRecordAbortsTheTransaction(t *testing.T) {
	in(t, func(t *testing.T, s *script, c *txn.Client) {
		s.write = func(record.TopicPartition) error { return &record.TooLargeError{What: "batch", Size: 2, Limit: 1} }
		err := c.Do(t.Context(), sends(1))
		require.ErrorIs(t, err, txn.ErrAborted)
		require.ErrorIs(t, err, record.ErrTooLarge)
		ops := s.ops()
		require.Equal(t, "end", ops[len(ops)-1])
	})
}

func TestAPartitionWhoseNewLeaderHasNotHeardOfTheTransactionIsAddedAgain(t *testing.T) {
	in(t, func(t *testing.T, s *script, c *txn.Client) {
		var once sync.Once
		s.write = func(tp record.TopicPartition) (err error) {
			once.Do(func() { err = &record.TransactionError{TopicPartition: tp} })
			return err
		}
		require.NoError(t, c.Do(t.Context(), func(tx *txn.Tx) error { return tx.Send(record.Record{Topic: "t"}) }))
		require.Equal(t, []string{"take", "add", "add", "commit"}, s.ops())
		require.Equal(t, 1, s.batches)
	})
}

func TestAClientThatWasReplacedSaysSoForEver(t *testing.T) {
	in(t, func(t *testing.T, s *script, c *txn.Client) {
		s.set(func(_ context.Context, req coordinator.Request) error {
			if req.Op != coordinator.OpTake {
				return &record.FencedError{What: "holder"}
			}
			return nil
		})
		err := c.Do(t.Context(), sends(1))
		require.ErrorIs(t, err, txn.ErrAborted)
		require.ErrorIs(t, err, record.ErrFenced)
		s.ops()
		require.ErrorIs(t, c.Do(t.Context(), sends(1)), record.ErrFenced)
		require.Empty(t, s.ops())
		s.set(nil)
	})
}

func TestACommitThatNobodyWaitsForAnyMoreIsStillSettled(t *testing.T) {
	in(t, func(t *testing.T, s *script, c *txn.Client) {
		s.set(func(ctx context.Context, req coordinator.Request) error {
			if req.Op == coordinator.OpEnd {
				wait(ctx, 10*time.Second)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, c.Do(ctx, sends(1)), record.ErrOutcomeUnknown)
		began := time.Now()
		require.NoError(t, c.Do(t.Context(), sends(1)), "the next one waits until that is known")
		require.GreaterOrEqual(t, time.Since(began), 9*time.Second)
	})
}

func TestWhatBecameOfATransactionIsFoundOutBeforeTheNext(t *testing.T) {
	for _, committed := range []bool{true, false} {
		in(t, func(t *testing.T, s *script, c *txn.Client) {
			s.set(func(ctx context.Context, req coordinator.Request) error {
				if req.Op == coordinator.OpEnd {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})
			require.ErrorIs(t, c.Do(t.Context(), sends(1)), record.ErrOutcomeUnknown, "nobody answered for half a minute")
			s.ops()
			s.set(func(_ context.Context, req coordinator.Request) error {
				if req.Op == coordinator.OpEnd && !committed {
					return &coordinator.EndedError{ID: "x", Outcome: coordinator.CompleteAbort}
				}
				return nil
			})
			tx, err := c.Begin(t.Context())
			require.NoError(t, err)
			want := map[bool][]string{true: {"commit"}, false: {"commit", "take"}}[committed]
			require.Equal(t, want, s.ops())
			require.NoError(t, tx.Abort(t.Context()))
		})
	}
}

func TestATransactionThatWasEndedFromOutsideIsAborted(t *testing.T) {
	in(t, func(t *testing.T, s *script, c *txn.Client) {
		s.set(func(_ context.Context, req coordinator.Request) error {
			if req.Op == coordinator.OpEnd {
				return &coordinator.EndedError{ID: "x", Outcome: coordinator.CompleteAbort}
			}
			return nil
		})
		err := c.Do(t.Context(), sends(1))
		require.ErrorIs(t, err, txn.ErrAborted)
		require.ErrorIs(t, err, coordinator.ErrEnded)
	})
}

func TestAClientOfNonsenseIsRefused(t *testing.T) {
	for _, cfg := range []txn.Config{{Timeout: -1}, {Timeout: time.Hour}, {Timeout: time.Microsecond}} {
		_, err := txn.New(&script{}, "x", cfg)
		require.ErrorIs(t, err, record.ErrInvalid)
	}
	_, err := txn.New(&script{}, "", txn.Config{})
	require.ErrorIs(t, err, record.ErrInvalid)
}
