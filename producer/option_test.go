package producer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

func TestARecordWithAcksOfItsOwnKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := start(t, f, producer.Config{Linger: time.Second})
		sendAsync(p, rec("0"), rec("1"))
		done := make(chan producer.Result, 1)
		p.SendAsync(t.Context(), rec("2"), func(res producer.Result, err error) {
			require.NoError(t, err)
			done <- res
		}, producer.WithAcks(record.AckAll))
		sendAsync(p, rec("3"))
		require.NoError(t, p.Flush(t.Context()))
		require.EqualValues(t, 2, (<-done).Offset)
		require.Equal(t, []string{"0", "1", "2", "3"}, f.values(0))
		var acks []record.Acks
		for _, try := range f.tried() {
			acks = append(acks, try.acks)
		}
		require.Equal(t, []record.Acks{record.AckQuorum, record.AckAll, record.AckQuorum}, acks)
	})
}

func TestAcksOfOneRecordMustNotWeakenThePromise(t *testing.T) {
	f := newFake(t, 1)
	p := start(t, f, producer.Config{})
	for _, acks := range []record.Acks{record.AckLeader, record.AckNone, 9} {
		_, err := p.Send(t.Context(), rec("x"), producer.WithAcks(acks))
		require.ErrorIs(t, err, record.ErrInvalid)
		require.Equal(t, producer.NotWritten, producer.OutcomeOf(err))
	}
	require.Empty(t, f.tried())

	p = start(t, f, producer.Config{DisableIdempotence: true})
	_, err := p.Send(t.Context(), rec("x"), producer.WithAcks(record.AckLeader))
	require.NoError(t, err)
	require.Equal(t, record.AckLeader, f.tried()[0].acks)
}

func TestATopicMayHaveACodecOfItsOwn(t *testing.T) {
	f := newFake(t, 1)
	codecs := map[string]record.Codec{"t": record.Zstd, "plain": record.None}
	p := start(t, f, producer.Config{Codec: record.LZ4, Codecs: codecs})
	codecs["t"] = record.Gzip // the producer has a copy
	for topic, want := range map[string]record.Codec{"t": record.Zstd, "plain": record.None, "other": record.LZ4} {
		_, err := p.Send(t.Context(), record.Record{Topic: topic, Value: make([]byte, 1000)})
		require.NoError(t, err)
		require.Equal(t, want, f.log(record.TopicPartition{Topic: topic}).batches[0].Codec(), topic)
	}
}

func TestOutcomeOfAnError(t *testing.T) {
	unknown := &record.OutcomeUnknownError{Err: record.ErrClosed}
	for want, errs := range map[producer.Outcome][]error{
		producer.Written:    {nil},
		producer.NotWritten: {record.ErrClosed, &producer.NotWrittenError{Err: record.ErrFenced}, &producer.BufferFullError{}},
		producer.Unknown:    {unknown, &record.OutcomeUnknownError{Err: record.ErrFenced}},
	} {
		for _, err := range errs {
			require.Equal(t, want, producer.OutcomeOf(err), "%v", err)
		}
	}
	require.Equal(t, "not written, written, unknown", producer.NotWritten.String()+", "+producer.Written.String()+", "+producer.Unknown.String())
}
