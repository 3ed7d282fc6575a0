package record

import (
	"fmt"
	"hash/crc32"
	"math"
)

// castagnoli is the polynomial of CRC-32C; never written after start.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CheckHeader reports whether b is one batch with a header that makes sense:
// the sizes agree, the format is known, the counts fit each other. After it
// every other method is safe. It reads only the header; the error is a
// *BatchError, or a *TooLargeError above MaxBatchBytes.
func (b Batch) CheckHeader() error {
	if len(b) < HeaderSize {
		return &BatchError{BaseOffset: NoOffset, Reason: fmt.Sprintf("%d bytes, a header alone has %d", len(b), HeaderSize)}
	}
	if b.Size() != len(b) {
		return b.fault("header says %d bytes, there are %d", b.Size(), len(b))
	}
	if len(b) > MaxBatchBytes {
		return &TooLargeError{What: "batch", Size: len(b), Limit: MaxBatchBytes}
	}
	if b[atMagic] != magic {
		return b.fault("magic %d, want %d", int8(b[atMagic]), magic)
	}
	if unknown := b.attributes() &^ attrKnown; unknown != 0 {
		return b.fault("unknown attributes %#04x", uint16(unknown))
	}
	if !b.Codec().known() {
		return b.fault("unknown codec %d", b.Codec())
	}
	if err := b.checkOffsets(); err != nil {
		return err
	}
	return b.checkProducer()
}

func (b Batch) checkOffsets() error {
	delta, count := b.int32At(atLastOffsetDelta), b.Count()
	switch {
	case b.BaseOffset() < 0:
		return b.fault("base offset below zero")
	case delta < 0:
		return b.fault("last offset delta %d below zero", delta)
	case b.BaseOffset() > math.MaxInt64-1-Offset(delta): // NextOffset must fit
		return b.fault("offsets run past 2^63-1")
	case b.LeaderEpoch() < NoLeaderEpoch:
		return b.fault("leader epoch %d", b.LeaderEpoch())
	case count < 0 || int64(count) > int64(delta)+1:
		return b.fault("%d records in %d offsets", count, int64(delta)+1)
	}
	return nil
}

// checkProducer leaves the other two fields alone where there is no producer
// id: common clients fill them differently.
func (b Batch) checkProducer() error {
	switch id, epoch, seq := b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(); {
	case id < NoProducerID:
		return b.fault("producer id %d", id)
	case id >= 0 && epoch < 0:
		return b.fault("producer %d without an epoch (%d)", id, epoch)
	case id >= 0 && (seq < NoSequence || seq == NoSequence && !b.IsControl()):
		return b.fault("producer %d without a sequence (%d)", id, seq)
	}
	return nil
}

// Check is CheckHeader and the checksum. It reads all of the batch but does not
// decode it: whether the records inside are well formed, an Iterator tells.
func (b Batch) Check() error {
	if err := b.CheckHeader(); err != nil {
		return err
	}
	if got := b.sum(); got != b.CRC() {
		return b.fault("checksum is %08x, header says %08x", got, b.CRC())
	}
	return nil
}

func (b Batch) sum() uint32 { return crc32.Checksum(b[atAttributes:], castagnoli) }

func (b Batch) fault(format string, args ...any) error {
	return &BatchError{BaseOffset: b.BaseOffset(), Reason: fmt.Sprintf(format, args...)}
}

// Split cuts the first batch off a concatenation and returns it and what comes
// after it. Its header has been checked, its checksum has not. Both results
// alias buf. It is an error when buf is empty or ends inside the batch.
func Split(buf []byte) (b Batch, rest []byte, err error) {
	if len(buf) < HeaderSize {
		return nil, nil, Batch(buf).CheckHeader()
	}
	size := Batch(buf).Size()
	if size < HeaderSize || size > len(buf) {
		return nil, nil, Batch(buf).fault("header says %d bytes, there are %d", size, len(buf))
	}
	b = Batch(buf[:size:size])
	if err := b.CheckHeader(); err != nil {
		return nil, nil, err
	}
	return b, buf[size:], nil
}
