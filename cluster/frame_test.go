package cluster

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func testBatch(t testing.TB, values ...string) record.Batch {
	t.Helper()
	var b record.Builder
	for _, v := range values {
		require.NoError(t, b.Append(&record.Record{Value: []byte(v), Time: time.UnixMilli(1)}))
	}
	batch, err := b.Build(record.BatchOptions{})
	require.NoError(t, err)
	return batch
}

func TestProduceFramesHoldWhatWasPutIn(t *testing.T) {
	key := partitionKey{record.NewTopicID(), 7}
	batch := testBatch(t, "x")
	k, acks, b, err := getProduceRequest(append(putProduceRequest(key, record.AckLeader), batch...))
	require.NoError(t, err)
	require.Equal(t, key, k)
	require.Equal(t, record.AckLeader, acks)
	require.Equal(t, batch, b)
	for _, a := range []record.Appended{{BaseOffset: 1 << 40, LeaderEpoch: 9}, {BaseOffset: record.NoOffset, Duplicate: true}, {Synced: true}, {Duplicate: true, Synced: true}} {
		got, err := getProduceAnswer(putProduceAnswer(a))
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
}

func TestFetchFramesHoldWhatWasPutIn(t *testing.T) {
	req := fetchRequest{
		key: partitionKey{record.NewTopicID(), 7}, from: 1 << 40, maxBytes: 1 << 20,
		wait: 1500 * time.Millisecond, iso: record.ReadUncommitted,
	}
	got, err := getFetchRequest(req.put())
	require.NoError(t, err)
	require.Equal(t, req, got)
	for _, f := range []record.Fetched{
		{StartOffset: 1, LastStableOffset: 2, HighWatermark: 3, Next: 2},
		{StartOffset: 1, LastStableOffset: 2, HighWatermark: 3},
		{Batches: []record.Batch{testBatch(t, "x", "y"), testBatch(t, "z")}, HighWatermark: 3},
	} {
		got, err := getFetchAnswer(bytes.Join(putFetchAnswer(f), nil))
		require.NoError(t, err)
		require.Equal(t, f, got)
	}
}

// TestShortFramesAreErrors cuts every frame at every place.
func TestShortFramesAreErrors(t *testing.T) {
	key := partitionKey{record.NewTopicID(), 7}
	fetched := bytes.Join(putFetchAnswer(record.Fetched{Batches: []record.Batch{testBatch(t, "x")}}), nil)
	for name, f := range map[string]struct {
		frame []byte
		get   func([]byte) error
		whole int // a frame cut here is whole
	}{
		"produce request": {putProduceRequest(key, 0), func(b []byte) error { _, _, _, err := getProduceRequest(b); return err }, produceRequestSize},
		"produce answer":  {putProduceAnswer(record.Appended{}), func(b []byte) error { _, err := getProduceAnswer(b); return err }, produceAnswerSize},
		"fetch request":   {fetchRequest{key: key}.put(), func(b []byte) error { _, err := getFetchRequest(b); return err }, fetchRequestSize},
		"fetch answer":    {fetched, func(b []byte) error { _, err := getFetchAnswer(b); return err }, fetchAnswerSize},
		"error answer":    {errorAnswer(record.ErrClosed)[:1], func(b []byte) error { _, err := answerBody(b, 1); return err }, 2},
	} {
		for n := range f.frame {
			if n != f.whole {
				require.Error(t, f.get(f.frame[:n]), "%s of %d bytes", name, n)
			}
		}
	}
}
