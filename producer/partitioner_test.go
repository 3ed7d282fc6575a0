package producer_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

func TestByKeyKeepsAKeyInItsPartition(t *testing.T) {
	pick := producer.ByKey("t")
	for range 3 {
		require.Equal(t, producer.KeyPartition([]byte("foobar"), 8), pick.Pick(&record.Record{Key: []byte("foobar")}, 8))
		require.Equal(t, producer.KeyPartition(nil, 8), pick.Pick(&record.Record{Key: []byte{}}, 8), "an empty key is a key")
	}
}

func TestByKeySpreadsRecordsWithoutAKeyByBytes(t *testing.T) {
	pick := producer.ByKey("t")
	value := make([]byte, 1000)
	const n, runs = 4, 400
	got := make([]int, n)
	for range runs {
		first := pick.Pick(&record.Record{Value: value}, n)
		got[first]++
		for range 63 { // 64 KiB of records, but for a few bytes each
			pick.Pick(&record.Record{Key: []byte("k")}, n)
			require.Equal(t, first, pick.Pick(&record.Record{Value: value}, n), "they stay together")
			got[first]++
		}
	}
	for p := range got {
		require.InDelta(t, runs*64/n, got[p], runs*64/n/2, "partition %d", p) // 7 standard deviations
	}
	require.Less(t, pick.Pick(&record.Record{}, 1), 1, "fewer partitions")
}

func TestRoundRobinGivesEachPartitionOneRecordInTurn(t *testing.T) {
	pick := producer.RoundRobin("t")
	first := pick.Pick(&record.Record{}, 3)
	for i := 1; i < 10; i++ {
		require.Equal(t, (first+i)%3, pick.Pick(&record.Record{Key: []byte("k")}, 3))
	}
}

func TestRoundRobinBeginsAnywhere(t *testing.T) {
	begun := map[int]bool{}
	for range 200 { // to miss one of three every time: once in 10^35
		begun[producer.RoundRobin("t").Pick(&record.Record{}, 3)] = true
	}
	require.Len(t, begun, 3, "producers that start together must not all begin with partition 0")
}

func TestManualTakesThePartitionOfTheRecord(t *testing.T) {
	require.Equal(t, 2, producer.Manual("t").Pick(&record.Record{Partition: 2}, 3))
}

func TestPartitionsThatDoNotExistAreRefused(t *testing.T) {
	p := start(t, newFake(t, 3), producer.Config{Partitioner: producer.Manual, BatchBytes: 1 << 10, BufferBytes: 1 << 10})
	for range 100 { // and leave nothing in the buffer
		_, err := p.Send(t.Context(), record.Record{Topic: "t", Partition: -1})
		require.ErrorIs(t, err, record.ErrInvalid)
	}
	_, err := p.Send(t.Context(), record.Record{Topic: "t", Partition: 3})
	var unknown *record.UnknownTopicError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, record.UnknownTopicError{Topic: "t", Partition: 3}, *unknown)

	res, err := p.Send(t.Context(), record.Record{Topic: "t", Partition: 2})
	require.NoError(t, err)
	require.Equal(t, producer.Result{Topic: "t", Partition: 2}, res)
}

func TestByFuncSeesTheRecordAndTheNumberOfPartitions(t *testing.T) {
	p := start(t, newFake(t, 5), producer.Config{Partitioner: producer.ByFunc(func(r *record.Record, n int) int {
		return (len(r.Value) + n) % n
	})})
	res, err := p.Send(t.Context(), rec("four"))
	require.NoError(t, err)
	require.EqualValues(t, 4, res.Partition)
}
