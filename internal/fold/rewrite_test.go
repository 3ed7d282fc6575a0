package fold

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/fold/foldtest"
	"github.com/quorumlog/quorumlog/record"
)

// ledger is a state of values by key.
type ledger map[string]string

func (l ledger) Apply(r record.Record) error {
	if r.Value == nil {
		delete(l, string(r.Key))
	} else {
		l[string(r.Key)] = string(r.Value)
	}
	return nil
}

func (l ledger) Keys() (keys []any) {
	for k := range l {
		keys = append(keys, k)
	}
	return keys
}

func (l ledger) Current(key any, _ time.Time) (record.Record, bool, error) {
	v, ok := l[key.(string)]
	return record.Record{Key: []byte(key.(string)), Value: []byte(v)}, ok, nil
}

// book is a fold whose log is kept short.
type book struct {
	*Fold
	ledger ledger
	anew   int // how often it began at a start of the log that it did not know
}

const floor = 1 << 10

func openBook(n Partition) *book {
	b := &book{anew: -1}
	b.Fold = Start(Config{Partition: n, Compaction: &Compaction{
		New:   func() State { b.anew++; return ledger{} },
		Show:  func(s State) { b.ledger = s.(ledger) },
		Floor: floor,
	}})
	return b
}

// set proposes a value; "" deletes.
func (b *book) set(ctx context.Context, key, value string) error {
	return b.Propose(ctx, func(record.LeaderEpoch) ([]record.Record, error) {
		r := record.Record{Key: []byte(key)}
		if value != "" {
			r.Value = []byte(value)
		}
		return []record.Record{r}, nil
	})
}

// check compares what a node shows with all that was ever written below where it is.
func (b *book) check(t *testing.T, q *foldtest.Quorum) {
	t.Helper()
	b.View(func() {
		q.Lock()
		defer q.Unlock()
		all := ledger{}
		_, err := q.Replay(b.next, all.Apply)
		require.NoError(t, err)
		require.Equal(t, all, b.ledger, "at %d of %d, which begins at %d", b.next, q.End, q.Start)
	})
}

func TestALogOfFewKeysStaysSmall(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, b *foldtest.Node) {
		q.Elect(a, false)
		leader, follower := openBook(a), openBook(b)
		t.Cleanup(leader.Close)
		t.Cleanup(follower.Close)
		require.NoError(t, leader.set(t.Context(), "gone", "x"))
		require.NoError(t, leader.set(t.Context(), "kept", "x"))
		require.NoError(t, leader.set(t.Context(), "gone", ""))
		for i := range 2000 {
			require.NoError(t, leader.set(t.Context(), fmt.Sprint("key", i%7), fmt.Sprint(i)))
			synctest.Wait()
			q.Do(func() { require.Less(t, q.Bytes(), 2*floor) })
		}
		leader.check(t, q)
		follower.check(t, q)
		late := openBook(q.Node())
		t.Cleanup(late.Close)
		require.NoError(t, late.Wait(t.Context(), q.Tail()))
		late.check(t, q)
		require.Equal(t, "x", late.ledger["kept"])
		require.NotContains(t, late.ledger, "gone")
		q.Do(func() { require.Positive(t, q.Start) })
	})
}

func TestALargeStateIsRewrittenInPiecesWhenItHasGrownManyTimes(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, b *foldtest.Node) {
		q.Elect(a, false)
		leader, follower := openBook(a), openBook(b)
		t.Cleanup(leader.Close)
		t.Cleanup(follower.Close)
		value := string(make([]byte, 200))
		const keys = 200
		total, last := 0, record.Offset(0)
		var marks []int // bytes written between
		for i := range 20 * keys {
			require.NoError(t, leader.set(t.Context(), fmt.Sprint(i%keys), fmt.Sprint(i)+value))
			synctest.Wait()
			q.Do(func() {
				total += len(q.Batches[len(q.Batches)-1])
				if q.Start > last {
					marks, total, last = append(marks, total), 0, q.Start
				}
				require.Less(t, q.Bytes(), 6*keys*300)
				last := q.Batches[len(q.Batches)-1]
				require.EqualValues(t, 1, last.Count(), "a value is longer than a piece should be, the mark must not make it longer")
			})
		}
		leader.check(t, q)
		require.Greater(t, leader.limit, int64(2*keys*200))
		require.Equal(t, leader.limit, follower.limit, "who leads next goes on where this one is")
		require.Greater(t, marks[len(marks)-1], 2*keys*200, "not more often than it needs")
	})
}

// Whoever decides between two pieces must not find its record overwritten by what was
// true before.
func TestARewritingOverwritesNothingNewer(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		q.Elect(a, false)
		leader := openBook(a)
		t.Cleanup(leader.Close)
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 300 {
					key := fmt.Sprint(w, "/", i%20)
					if err := leader.set(t.Context(), key, fmt.Sprint(i)); err != nil {
						t.Error(err)
					}
					leader.View(func() {
						if leader.ledger[key] != fmt.Sprint(i) {
							t.Errorf("%s is %q, not %d", key, leader.ledger[key], i)
						}
					})
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		leader.check(t, q)
		q.Do(func() { require.Positive(t, q.Start) })
	})
}

// A node that was away over several trims shows what it had until it knows all again.
func TestANodeThatMissedAPartOfTheLogShowsNoPartOfTheState(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, b *foldtest.Node) {
		q.Elect(a, false)
		leader, away := openBook(a), openBook(b)
		t.Cleanup(leader.Close)
		t.Cleanup(away.Close)
		require.NoError(t, leader.set(t.Context(), "k", "old"))
		synctest.Wait()
		q.Do(func() { b.Held = true })
		for i := range 1000 {
			require.NoError(t, leader.set(t.Context(), fmt.Sprint("key", i%7), fmt.Sprintf("%064d", i)))
			if i%20 == 0 {
				synctest.Wait() // the log is shortened meanwhile
			}
		}
		synctest.Wait()
		q.Do(func() { require.Greater(t, q.Start, record.Offset(100)) })

		// It comes back to where the log begins, and the rest is slow to come.
		q.Do(func() { b.Held, b.Upto = false, q.Start })
		waited := make(chan error, 1)
		go func() { waited <- away.Wait(t.Context(), 500) }()
		steps := 0
		for upto := q.Start; upto <= q.Tail(); upto++ {
			q.Do(func() { b.Upto = upto })
			synctest.Wait()
			away.check(t, q)
			if away.next == 1 { // there was no mark yet
				steps++
				require.Empty(t, waited, "what it waits for is trimmed, and not known yet")
			}
		}
		require.Positive(t, steps)
		require.NoError(t, <-waited)
		require.Equal(t, "old", away.ledger["k"])
		require.Len(t, away.ledger, 8)
	})
}

// Two leaders may take turns while each is at a rewriting of its own.
func TestAMarkOfARewritingThatBeganBelowTheStartSaysNothing(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		put := func(key, value string, more ...record.Record) {
			b, err := build(append(more, record.Record{Key: []byte(key), Value: []byte(value)}))
			require.NoError(t, err)
			q.Do(func() { q.Write(b) })
		}
		put("x", "1") // 0: where one begins
		put("x", "2") // 1: the other, which the log is trimmed to
		first, err := mark(0, 100)
		require.NoError(t, err)
		put("y", "1", first) // 2, 3
		q.Do(func() { q.Start = 1 })
		b := openBook(a)
		t.Cleanup(b.Close)
		synctest.Wait()
		b.View(func() { require.Empty(t, b.ledger) })
		second, err := mark(1, 100)
		require.NoError(t, err)
		put("z", "1", second)
		synctest.Wait()
		b.View(func() { require.Equal(t, ledger{"x": "2", "y": "1", "z": "1"}, b.ledger) })
	})
}

// History is random, rewritings are broken off, leaders change and may not know it,
// nodes lag and start anew; each shows at any time what was ever written below where
// it is, trimmed or not.
func TestWhatIsFoldedFromAnyStartOfTheLogIsTheSame(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("QUORUMLOG_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("QUORUMLOG_SEED=%d", seed)
	rewritten, rebuilt := 0, 0
	for i := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			w, b := randomHistory(t, rand.New(rand.NewPCG(seed, i)))
			rewritten, rebuilt = rewritten+w, rebuilt+b
		})
	}
	t.Logf("%d rewritings were complete, %d nodes began anew", rewritten, rebuilt)
	require.Greater(t, rewritten, 40)
	require.Greater(t, rebuilt, 100)
}

func randomHistory(t *testing.T, rng *rand.Rand) (rewritten, rebuilt int) {
	q := foldtest.NewQuorum()
	nodes := make([]*foldtest.Node, 3)
	books := make([]*book, len(nodes))
	for i := range nodes {
		nodes[i] = q.Node()
		share := rng.Float64()
		nodes[i].Round = func(offset record.Offset) record.Offset { // whole files go
			return offset - record.Offset(share*float64(offset-q.Start))
		}
		books[i] = openBook(nodes[i])
	}
	defer func() {
		for _, b := range books {
			b.Close()
		}
	}()
	q.Elect(nodes[0], false)
	keys := 3 + rng.IntN(150)
	for range 1500 {
		i := rng.IntN(len(nodes))
		n, b := nodes[i], books[i]
		switch rng.IntN(40) {
		case 0:
			q.Elect(n, rng.IntN(2) == 0)
		case 1:
			written := rng.IntN(2) == 0
			q.Do(func() {
				n.FailAppend = func(write func()) error {
					n.FailAppend = nil
					if written && q.Leader == n {
						write()
					}
					return &record.OutcomeUnknownError{Err: errors.New("answer lost")}
				}
			})
		case 2:
			q.Do(func() { n.FailTrim = func() error { n.FailTrim = nil; return record.ErrUnreachable } })
		case 3, 4:
			q.Do(func() { n.Held = !n.Held })
		case 5:
			synctest.Wait()
			b.Close()
			rebuilt += b.anew
			books[i] = openBook(n)
		case 6:
			q.Do(func() { n.Upto = q.Start + record.Offset(rng.IntN(int(q.End-q.Start)+1)) })
			synctest.Wait()
			b.check(t, q)
			q.Do(func() { n.Upto = 0 })
		default:
			value := fmt.Sprint(rng.IntN(1e6))
			if rng.IntN(4) == 0 {
				value = ""
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			err := b.set(ctx, fmt.Sprint("key", rng.IntN(keys)), value)
			cancel()
			if err != nil {
				require.True(t, errors.Is(err, record.ErrNotLeader) || errors.Is(err, record.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded), "%v", err)
			}
		}
	}
	q.Do(func() {
		for _, n := range nodes {
			n.Held, n.FailAppend, n.FailTrim = false, nil, nil
		}
	})
	q.Elect(nodes[0], false)
	require.NoError(t, books[0].set(t.Context(), "last", "x"))
	for _, b := range append(books, openBook(q.Node())) {
		require.NoError(t, b.Wait(t.Context(), q.Tail()))
		b.check(t, q)
		b.Close()
		rebuilt += b.anew
	}
	rewritten, err := q.Replay(q.Tail(), ledger{}.Apply)
	require.NoError(t, err)
	return rewritten, rebuilt
}
