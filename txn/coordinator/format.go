package coordinator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// The bytes of records: see the package comment.
const (
	kindTransaction = 1 // first byte of a key
	formatVersion   = 1 // first byte of a value
	flagLastCommit  = 1
)

// codes are the bytes of the states that have a record. They are part of the format.
var codes = []Status{1: Empty, 2: Ongoing, 3: PrepareCommit, 4: PrepareAbort, 5: CompleteCommit, 6: CompleteAbort}

var errFormat = errors.New("the bytes are no transaction")

// encode returns the record that sets id to t, or deletes it if t is nil.
func encode(now time.Time, id string, t *transaction) record.Record {
	r := record.Record{Time: now, Key: append([]byte{kindTransaction}, id...)}
	if t == nil {
		return r
	}
	b := make([]byte, 0, 128)
	flags := byte(0)
	if t.LastCommit {
		flags |= flagLastCommit
	}
	b = append(b, formatVersion, byte(slices.Index(codes, t.Status)), flags)
	b = binary.BigEndian.AppendUint16(b, uint16(t.Epoch))
	b = binary.BigEndian.AppendUint16(b, uint16(t.LastEpoch))
	for _, v := range []int64{int64(t.Producer), int64(t.LastProducer), t.Timeout, t.Start, t.Updated} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	b = putName(b, t.Holder)
	b = putNames(b, t.Past)
	b = putNames(b, t.Groups)
	b = binary.AppendUvarint(b, uint64(len(t.Partitions)))
	for _, topic := range slices.Sorted(maps.Keys(t.Partitions)) {
		b = putName(b, topic)
		b = binary.AppendUvarint(b, uint64(len(t.Partitions[topic])))
		for _, p := range t.Partitions[topic] {
			b = binary.AppendUvarint(b, uint64(p))
		}
	}
	r.Value = b
	return r
}

func putName(b []byte, name string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(name))), name...)
}

func putNames(b []byte, names []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, name := range names {
		b = putName(b, name)
	}
	return b
}

// decode returns what encode was given; nil for an id that is deleted.
func decode(r record.Record) (id string, t *transaction, err error) {
	if len(r.Key) == 0 || r.Key[0] != kindTransaction {
		return "", nil, fmt.Errorf("record %q: this build does not know the kind", r.Key)
	}
	id = string(r.Key[1:])
	if r.Value == nil {
		return id, nil, nil
	}
	if len(r.Value) == 0 || r.Value[0] != formatVersion {
		return "", nil, fmt.Errorf("record of %q: this build knows version %d, not that of %x", id, formatVersion, r.Value[:min(1, len(r.Value))])
	}
	d := decoder{b: r.Value[1:]}
	t = new(transaction)
	code, flags := d.take(1)[0], d.take(1)[0]
	if code == 0 || int(code) >= len(codes) || flags > flagLastCommit {
		return "", nil, fmt.Errorf("record of %q: state %d, flags %d: %w", id, code, flags, errFormat)
	}
	t.Status, t.LastCommit = codes[code], flags&flagLastCommit != 0
	t.Epoch = record.ProducerEpoch(binary.BigEndian.Uint16(d.take(2)))
	t.LastEpoch = record.ProducerEpoch(binary.BigEndian.Uint16(d.take(2)))
	t.Producer, t.LastProducer = record.ProducerID(d.i64()), record.ProducerID(d.i64())
	t.Timeout, t.Start, t.Updated = d.i64(), d.i64(), d.i64()
	t.Holder = d.name()
	t.Past, t.Groups = d.names(), d.names()
	for range d.count() {
		topic := d.name()
		partitions := make([]int32, d.count())
		for i := range partitions {
			p := d.uvarint()
			d.failed = d.failed || p > math.MaxInt32
			partitions[i] = int32(p)
		}
		if t.Partitions == nil {
			t.Partitions = map[string][]int32{}
		}
		t.Partitions[topic] = partitions
	}
	if d.failed || len(d.b) > 0 {
		return "", nil, fmt.Errorf("record of %q: %w", id, errFormat)
	}
	return id, t, nil
}

// decoder reads from b. What is not there reads as zero, and counts as a failure.
type decoder struct {
	b      []byte
	failed bool
}

func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.failed = true
		d.b = nil
		return make([]byte, min(n, 8)) // no caller that goes on wants more
	}
	taken := d.b[:n]
	d.b = d.b[n:]
	return taken
}

func (d *decoder) i64() int64 { return int64(binary.BigEndian.Uint64(d.take(8))) }

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.failed = true
		d.b = nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads how many things follow, each of at least a byte.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.failed = true
		return 0
	}
	return int(n)
}

func (d *decoder) name() string { return string(d.take(d.count())) }

func (d *decoder) names() (names []string) {
	for range d.count() {
		names = append(names, d.name())
	}
	return names
}
