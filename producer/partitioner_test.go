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
		pick.Sealed(0)
	}
}

func TestByKeyKeepsRecordsWithoutAKeyTogetherUntilTheBatchIsSealed(t *testing.T) {
	pick := producer.ByKey("t")
	seen := make(map[int]int)
	for range 400 {
		first := pick.Pick(&record.Record{}, 4)
		pick.Sealed((first + 1) % 4) // another partition's batch
		pick.Pick(&record.Record{Key: []byte("k")}, 4)
		require.Equal(t, first, pick.Pick(&record.Record{}, 4))
		pick.Sealed(first)
		seen[first]++
	}
	require.Len(t, seen, 4, "all partitions get their share")
}

func TestRoundRobinGivesEachPartitionOneRecordInTurn(t *testing.T) {
	pick := producer.RoundRobin("t")
	first := pick.Pick(&record.Record{}, 3)
	for i := 1; i < 10; i++ {
		require.Equal(t, (first+i)%3, pick.Pick(&record.Record{Key: []byte("k")}, 3))
	}
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
