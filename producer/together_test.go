package producer_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

func TestRecordsThatAreSentTogetherAreOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 3)
		p := start(t, f, producer.Config{})
		sendAsync(p, rec("before"))
		key := []byte("k")
		home := int32(producer.KeyPartition(key, 3))
		with := func(v string) record.Record { r := rec(v); r.Key = key; return r }
		res, err := p.SendTogether(t.Context(), []record.Record{rec("1"), with("2"), with("3"), rec("4")})
		require.NoError(t, err)
		require.Equal(t, home, res.Partition)
		tp := record.TopicPartition{Topic: "t", Partition: home}
		batches := f.log(tp).batches
		require.EqualValues(t, 4, batches[len(batches)-1].Count())
		require.Equal(t, res.Offset, batches[len(batches)-1].BaseOffset())
	})
}

func TestRecordsThatCannotBeOneBatchAreRefusedAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 3)
		p := start(t, f, producer.Config{BatchBytes: 1 << 10})
		keyed := func(k string) record.Record { return record.Record{Topic: "t", Key: []byte(k)} }
		var apart []record.Record
		for _, k := range []string{"a", "b", "c", "d", "e"} {
			apart = append(apart, keyed(k))
		}
		for name, tc := range map[string]struct {
			records []record.Record
			want    error
		}{
			"none":             {nil, record.ErrInvalid},
			"no topic":         {[]record.Record{{}}, record.ErrInvalid},
			"two topics":       {[]record.Record{rec("x"), {Topic: "other"}}, record.ErrInvalid},
			"other partitions": {apart, record.ErrInvalid},
			"too large":        {[]record.Record{rec(string(make([]byte, 600))), rec(string(make([]byte, 600)))}, record.ErrTooLarge},
		} {
			_, err := p.SendTogether(t.Context(), tc.records)
			require.ErrorIs(t, err, tc.want, name)
		}
		require.NoError(t, p.Flush(t.Context()))
		require.Empty(t, f.tried())
		_, err := p.SendTogether(t.Context(), []record.Record{rec("after")})
		require.NoError(t, err, "the buffer is not leaking")
	})
}
