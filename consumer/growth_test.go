package consumer

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// growing is a memory that shows only some of its partitions.
type growing struct {
	memory
	shown *atomic.Int32
}

func (g growing) Partitions(context.Context, string) (int, error) { return int(g.shown.Load()), nil }

func TestALiveReadTakesInPartitionsFromTheirFirstRecord(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		opt  ReadOption
		want []string
	}{
		"from the start":       {FromStart(), []string{"old", "later 1", "later 2", "last"}},
		"from the end":         {FromEnd(), []string{"later 1", "later 2", "last"}},
		"from an offset":       {FromOffset(1), []string{"later 1", "later 2", "last"}},
		"from a time":          {FromTime(noon.Add(time.Minute)), []string{"later 2", "last"}},
		"from a time to come":  {FromTime(noon.Add(time.Hour)), []string{"later 1", "later 2", "last"}},
		"of the old partition": {Partition(0), []string{"old", "last"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := growing{newMemory("orders", 3), new(atomic.Int32)}
				g.shown.Store(1)
				write := func(p int, value string, at time.Time) {
					var b record.Builder
					require.NoError(t, b.Append(&record.Record{Value: []byte(value), Time: at}))
					packed, err := b.Build(record.BatchOptions{})
					require.NoError(t, err)
					g.memory["orders"][p].append(packed)
				}
				write(0, "old", noon)
				values := make(chan string, 10)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					defer close(values)
					for r, err := range Read(ctx, g, "orders", tc.opt) {
						if err != nil {
							return
						}
						values <- string(r.Value)
					}
				}()
				synctest.Wait()
				write(2, "later 1", noon)
				write(2, "later 2", noon.Add(2*time.Minute))
				g.shown.Store(3)
				time.Sleep(2 * growthInterval)
				synctest.Wait()
				write(0, "last", noon)
				synctest.Wait()
				cancel()
				var got []string
				for v := range values {
					got = append(got, v)
				}
				require.Equal(t, tc.want, got)
			})
		})
	}
}

func TestAReadUntilTheEndEndsThoughTheTopicGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := growing{newMemory("orders", 2), new(atomic.Int32)}
		g.shown.Store(1)
		g.memory.fill(t, "orders", 2, 1)
		var got []string
		for r, err := range Read(t.Context(), g, "orders", UntilEnd()) {
			require.NoError(t, err)
			g.shown.Store(2)
			time.Sleep(2 * growthInterval)
			got = append(got, string(r.Value))
		}
		require.Equal(t, want(0, 0, 2), got)
	})
}
