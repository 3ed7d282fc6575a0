package producer_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

// With many partitions batches wait for each other, so that they fill; none is left
// behind, also when nobody flushes.
func TestBatchesThatAreNotFullWaitWhileManyAreOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, many = 500, 64
		f := newFake(t, partitions)
		release := make(chan struct{})
		f.judge = func(record.TopicPartition, record.Batch) fate { return fate{hold: release} }
		p := start(t, f, producer.Config{Partitioner: producer.Manual})
		for i := range 4 {
			for tp := range int32(partitions) {
				p.SendAsync(t.Context(), record.Record{Topic: "t", Partition: tp, Value: []byte(strconv.Itoa(i))}, nil)
			}
			synctest.Wait()
			require.Len(t, f.tried(), many)
		}
		release <- struct{}{}
		synctest.Wait()
		require.Len(t, f.tried(), many+1, "one is answered, and the next one goes")

		begin := time.Now()
		close(release)
		synctest.Wait()
		require.Equal(t, begin, time.Now())
		for tp := range int32(partitions) {
			require.Equal(t, []string{"0", "1", "2", "3"}, f.values(tp))
		}
		require.Len(t, f.tried(), 2*many+partitions-many, "the first had one record each, the others all four")
		require.NoError(t, p.Flush(t.Context()))
	})
}

// A full buffer is no reason to send batches nearly empty: what one answer frees is
// spread over all partitions, and would leave as one batch to each.
func TestBatchesFillAlsoWhenTheBufferIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, each = 500, 20
		f := newFake(t, partitions)
		release := make(chan struct{})
		f.judge = func(record.TopicPartition, record.Batch) fate { return fate{hold: release} }
		r := record.Record{Topic: "t", Value: make([]byte, 100)}
		p := start(t, f, producer.Config{
			Partitioner: producer.RoundRobin, BatchBytes: 64 << 10, BufferBytes: partitions * each * int64(record.SizeOf(&r)),
		})
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					p.SendAsync(t.Context(), r, nil)
				}
			}
		}()
		answer := func() {
			for range partitions {
				release <- struct{}{}
				synctest.Wait()
			}
		}
		answer() // the first are small
		answer()
		before := len(f.tried())
		answer()
		tries := f.tried()[before:]
		records := 0
		for _, try := range tries {
			records += int(try.count)
		}
		close(stop)
		close(release)
		<-stopped
		require.NoError(t, p.Flush(t.Context()))
		require.GreaterOrEqual(t, records, len(tries)*each/2)
	})
}
