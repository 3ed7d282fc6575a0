package record

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAMarkerIsAControlBatchAsKafkaWritesIt(t *testing.T) {
	for _, commit := range []bool{true, false} {
		m := Marker{Producer: 7, Epoch: 3, Commit: commit, Coordinator: 12}
		b, err := m.Batch()
		require.NoError(t, err)
		require.NoError(t, b.Check())
		got, ok, err := ParseMarker(b)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, m, got)

		require.True(t, b.IsTransactional())
		require.True(t, b.IsControl())
		require.Equal(t, NoSequence, b.BaseSequence())
		require.Equal(t, int32(1), b.Count())
		var it Iterator
		require.NoError(t, it.Reset(b))
		var r Record
		require.True(t, it.Next(&r))
		var key kmsg.ControlRecordKey
		require.NoError(t, key.ReadFrom(r.Key))
		require.Equal(t, map[bool]kmsg.ControlRecordKeyType{true: kmsg.ControlRecordKeyTypeCommit, false: kmsg.ControlRecordKeyTypeAbort}[commit], key.Type)
		var value kmsg.EndTxnMarker
		require.NoError(t, value.ReadFrom(r.Value))
		require.Equal(t, int32(12), value.CoordinatorEpoch)
	}
}

func TestWhatIsNoMarkerIsNotTakenForOne(t *testing.T) {
	control := func(key, value []byte) Batch {
		var b Builder
		require.NoError(t, b.Append(&Record{Key: key, Value: value}))
		batch, err := b.Build(BatchOptions{Producer: &ProducerStamp{ID: 1, Sequence: NoSequence}, Transactional: true, Control: true})
		require.NoError(t, err)
		return batch
	}
	_, ok, err := ParseMarker(control(binary.BigEndian.AppendUint32(nil, 100), nil))
	require.NoError(t, err)
	require.False(t, ok, "another type")
	_, _, err = ParseMarker(control(ControlCommit.Key(), []byte{0, 0, 1}))
	require.ErrorIs(t, err, ErrCorrupt)
	_, _, err = ParseMarker(control(ControlCommit.Key(), []byte{0, 1, 0, 0, 0, 1}))
	require.ErrorIs(t, err, ErrCorrupt, "another version")
	_, _, err = ParseMarker(control([]byte{1}, nil))
	require.ErrorIs(t, err, ErrCorrupt)
	var b Builder
	require.NoError(t, b.Append(&Record{Key: ControlCommit.Key()}))
	plain, err := b.Build(BatchOptions{})
	require.NoError(t, err)
	_, ok, err = ParseMarker(plain)
	require.NoError(t, err)
	require.False(t, ok)
}
