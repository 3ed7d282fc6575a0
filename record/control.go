package record

import (
	"encoding/binary"
	"fmt"
)

// ControlType says what the marker in a control batch means. It is the key of
// the batch's only record: int16 version 0, int16 type. The numbers are part
// of the format; readers skip types they do not know.
type ControlType int16

// Ends of a transaction.
const (
	ControlAbort  ControlType = 0
	ControlCommit ControlType = 1
)

const controlKeySize = 4

// Key returns the encoded form.
func (t ControlType) Key() []byte {
	return binary.BigEndian.AppendUint16(make([]byte, 2, controlKeySize), uint16(t))
}

// ParseControlKey decodes the key of a control batch's record. A version or
// size it does not know is ErrCorrupt, an unknown type is not an error.
func ParseControlKey(key []byte) (ControlType, error) {
	if len(key) != controlKeySize || key[0] != 0 || key[1] != 0 {
		return 0, fmt.Errorf("%w: control key %x, want 4 bytes of version 0", ErrCorrupt, key)
	}
	return ControlType(binary.BigEndian.Uint16(key[2:])), nil
}

// Marker ends a transaction in one partition. As bytes it is a control batch with
// one record: the key is a ControlType, the value int16 version 0, int32 epoch of
// the coordinator.
type Marker struct {
	Producer ProducerID
	// Epoch is above the transaction's: the marker ends every epoch below it.
	Epoch  ProducerEpoch
	Commit bool
	// Coordinator is the leader epoch of who sends it.
	Coordinator LeaderEpoch
}

const markerValueSize = 2 + 4

// Batch returns the marker as a control batch that has no place yet.
func (m Marker) Batch() (Batch, error) {
	t := ControlAbort
	if m.Commit {
		t = ControlCommit
	}
	var b Builder
	value := binary.BigEndian.AppendUint32(make([]byte, 2, markerValueSize), uint32(m.Coordinator))
	if err := b.Append(&Record{Key: t.Key(), Value: value}); err != nil {
		return nil, err
	}
	return b.Build(BatchOptions{
		Producer:      &ProducerStamp{ID: m.Producer, Epoch: m.Epoch, Sequence: NoSequence},
		Transactional: true, Control: true,
	})
}

// ParseMarker returns the marker that b is. ok is false for a batch that is none,
// also for a control batch of another type. ErrCorrupt if it is a marker that
// cannot be read. The header must have been checked.
func ParseMarker(b Batch) (m Marker, ok bool, err error) {
	if !b.IsControl() {
		return Marker{}, false, nil
	}
	var it Iterator
	var r Record
	if err := it.Reset(b); err != nil {
		return Marker{}, false, err
	}
	if !it.Next(&r) {
		return Marker{}, false, fmt.Errorf("%w: control batch at offset %d without a record", ErrCorrupt, b.BaseOffset())
	}
	t, err := ParseControlKey(r.Key)
	if err != nil || t != ControlAbort && t != ControlCommit {
		return Marker{}, false, err
	}
	if len(r.Value) != markerValueSize || r.Value[0] != 0 || r.Value[1] != 0 {
		return Marker{}, false, fmt.Errorf("%w: marker value %x, want 6 bytes of version 0", ErrCorrupt, r.Value)
	}
	return Marker{
		Producer: b.ProducerID(), Epoch: b.ProducerEpoch(), Commit: t == ControlCommit,
		Coordinator: LeaderEpoch(binary.BigEndian.Uint32(r.Value[2:])),
	}, true, nil
}
