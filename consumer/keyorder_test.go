package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// keyedRecord appends one record to a partition.
func (p *partition) keyedRecord(t testing.TB, key, value string) {
	var b record.Builder
	require.NoError(t, b.Append(&record.Record{Key: []byte(key), Value: []byte(value), Time: time.UnixMilli(1)}))
	out, err := b.Build(record.BatchOptions{})
	require.NoError(t, err)
	p.append(out)
}

func TestLaterRecordsOfAKeyFollowTheOneThatIsTriedAgain(t *testing.T) {
	for _, order := range []bool{false, true} {
		t.Run(fmt.Sprint("KeyOrder ", order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := newRetryWorld(t, 1, 2)
				p := w.partition(0)
				p.keyedRecord(t, "a", "a1")
				p.keyedRecord(t, "b", "b1")
				p.keyedRecord(t, "a", "a2")
				d := newDiary()
				fails := 2
				m := w.live(Config{Mover: c, Retry: RetryPolicy{Delays: []time.Duration{time.Minute, time.Minute}, KeyOrder: order}}, func(_ *mortal, r record.Record) error {
					d.note(r)
					if string(r.Value) == "a1" && fails > 0 {
						fails--
						return errBusy
					}
					return nil
				})
				time.Sleep(90 * time.Second) // a1 is in the second stage, and a2 has followed it
				p.keyedRecord(t, "a", "a3")
				time.Sleep(time.Hour)
				p.keyedRecord(t, "a", "a4") // nothing of the key is on the way any more
				settle()
				if order {
					require.Equal(t, "0s a1, 0s b1, 1m0s a1, 2m0s a1, 2m0s a2, 2m30s a3, 1h1m30s a4", d.text())
				} else {
					require.Equal(t, "0s a1, 0s b1, 0s a2, 1m0s a1, 1m30s a3, 2m0s a1, 1h1m30s a4", d.text())
				}
				require.Empty(t, letters(t, c))
				w.close(m.Group)
			})
		})
	}
}

func TestTheNextOwnerKnowsTheKeysThatAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 1, 1)
		p := w.partition(0)
		p.keyedRecord(t, "a", "a1")
		cfg := Config{Mover: c, Retry: RetryPolicy{Delays: []time.Duration{time.Minute}, KeyOrder: true}}
		d := newDiary()
		handle := func(_ *mortal, r record.Record) error {
			d.note(r)
			if string(r.Value) == "a1" && time.Since(d.start) < time.Second {
				return errBusy
			}
			return nil
		}
		m := w.live(cfg, handle)
		time.Sleep(10 * time.Second)
		m.die()
		w.bury(m)
		p.keyedRecord(t, "a", "a2")
		time.Sleep(11 * time.Second)
		next := w.live(cfg, handle)
		time.Sleep(time.Hour)
		require.Equal(t, "0s a1, 1m0s a1, 1m21s a2", d.text())
		w.close(next.Group)
	})
}

// Whatever fails how often, and whoever handles it: of each key, what succeeds
// does so in order.
func TestNoUpdateOvertakesAnEarlierOneUnderFailuresAndMoves(t *testing.T) {
	for _, atomic := range []bool{false, true} {
		t.Run(fmt.Sprint("in one step ", atomic), func(t *testing.T) { failAndMove(t, atomic) })
	}
}

func failAndMove(t *testing.T, atomic bool) {
	random := seed(t)
	synctest.Test(t, func(t *testing.T) {
		const partitions, keys, perKey = 3, 8, 12
		o := newOffice(t, partitions, 3)
		w, c := o.world, o.carrier
		var mu sync.Mutex
		succeeded := map[string][]int{}
		intN := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return random.IntN(n)
		}
		o.fate = func(int, record.Record) fate {
			switch intN(10) {
			case 0:
				return fate{late: time.Duration(1+intN(5000)) * time.Millisecond, abort: intN(2) == 0}
			case 1:
				return fate{refuse: record.ErrUnreachable}
			}
			return fate{hold: time.Duration(intN(50)) * time.Millisecond}
		}
		var mover Mover = c
		if atomic {
			mover = o.notary
		}
		hire := func(workers int) *mortal {
			g, err := Join(t.Context(), w.memory, o.coord, "billing", []string{"orders"}, Config{
				Workers: workers, Mover: mover, MaxPollBytes: 300,
				Retry: RetryPolicy{InPlace: 1, Delays: []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}, KeyOrder: true},
			})
			require.NoError(t, err)
			m := &mortal{Group: g, ended: make(chan error, 1)}
			go func() {
				m.ended <- g.Run(t.Context(), func(_ context.Context, r record.Record) error {
					time.Sleep(time.Duration(intN(200)) * time.Millisecond)
					if intN(10) < 6 {
						return errBusy
					}
					var n int
					_, err := fmt.Sscanf(string(r.Value), string(r.Key)+":%d", &n)
					require.NoError(t, err)
					mu.Lock()
					defer mu.Unlock()
					id := fmt.Sprint(r.Partition, string(r.Key))
					succeeded[id] = append(succeeded[id], n)
					return nil
				})
			}()
			return m
		}
		members := []*mortal{hire(1)}
		for n := range perKey {
			for p := range partitions {
				for k := range keys {
					w.partition(p).keyedRecord(t, fmt.Sprint("k", k), fmt.Sprintf("k%d:%d", k, n))
				}
			}
			time.Sleep(time.Duration(intN(5000)) * time.Millisecond)
			if len(members) < 3 && intN(2) == 0 {
				members = append(members, hire(1+3*intN(2)))
			} else if len(members) > 1 && intN(2) == 0 {
				require.NoError(t, members[0].Close(t.Context()))
				members = members[1:]
			}
		}
		time.Sleep(10 * time.Minute)
		for _, m := range members {
			require.NoError(t, m.Close(t.Context()))
		}
		done, dead := map[string]bool{}, map[string]bool{}
		for l, err := range NewDeadLetters(c.memory, c, "billing").List(t.Context()) {
			require.NoError(t, err)
			done[fmt.Sprint(l.Partition, string(l.Value))] = true
			dead[fmt.Sprint(l.Partition, string(l.Value))] = true
		}
		for id, got := range succeeded {
			// What was finished out of order when a partition moved comes again; of a
			// record that did so, one copy may die and another one succeed later.
			var first []int
			for _, n := range got {
				if !slices.Contains(first, n) && !dead[fmt.Sprint(id, ":", n)] {
					first = append(first, n)
				}
				done[fmt.Sprint(id, ":", n)] = true
			}
			require.True(t, slices.IsSorted(first), "%s: %v", id, got)
		}
		require.Len(t, done, partitions*keys*perKey)
	})
}
