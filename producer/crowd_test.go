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
		const partitions, many = 500, 128
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
