package cluster

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// partitionKey names a partition for good, unlike its name.
type partitionKey struct {
	topic     record.TopicID
	partition int32
}

const partitionKeySize = 16 + 4

func (k partitionKey) put(b []byte) []byte {
	b = append(b, k.topic[:]...)
	return binary.BigEndian.AppendUint32(b, uint32(k.partition))
}

func getPartitionKey(b []byte) (k partitionKey) {
	copy(k.topic[:], b)
	k.partition = int32(binary.BigEndian.Uint32(b[16:]))
	return k
}

// parsePartitionKey reads what fmt prints as "ID/N".
func parsePartitionKey(s string) (k partitionKey, err error) {
	id, number, ok := strings.Cut(s, "/")
	if !ok {
		return k, fmt.Errorf("%q names no partition", s)
	}
	if err := k.topic.UnmarshalText([]byte(id)); err != nil {
		return k, err
	}
	partition, err := strconv.ParseInt(number, 10, 32)
	k.partition = int32(partition)
	return k, err
}

// Sizes of the frames, see the package comment.
const (
	produceRequestSize = partitionKeySize + 4
	produceAnswerSize  = 1 + 8 + 4 + 1
	fetchRequestSize   = partitionKeySize + 8 + 4 + 4 + 1
	fetchAnswerSize    = 1 + 8 + 8 + 8 + 8
)

// First byte of every answer.
const (
	answerOK    = 0
	answerError = 1 // a wireError as JSON follows
)

var errFrame = errors.New("message between nodes has the wrong size; are they of one version?")

// answerBody returns what follows the first byte, or the error it announces.
func answerBody(b []byte, size int) ([]byte, error) {
	if len(b) == 0 {
		return nil, errFrame
	}
	if b[0] == answerError {
		var w wireError
		if err := json.Unmarshal(b[1:], &w); err != nil {
			return nil, err
		}
		return nil, w.err()
	}
	if len(b) < size {
		return nil, errFrame
	}
	return b[1:], nil
}

func errorAnswer(err error) []byte {
	body, jsonErr := json.Marshal(toWire(err))
	if jsonErr != nil { // a text that is not UTF-8 is still a text to JSON, so this cannot happen
		body = []byte(`{"text":"error without a text"}`)
	}
	return append([]byte{answerError}, body...)
}

func putProduceRequest(k partitionKey, acks record.Acks) []byte {
	b := k.put(make([]byte, 0, produceRequestSize))
	return append(b, byte(acks), 0, 0, 0)
}

// getProduceRequest returns a batch that lies in b.
func getProduceRequest(b []byte) (k partitionKey, acks record.Acks, batch record.Batch, err error) {
	if len(b) < produceRequestSize {
		return k, 0, nil, errFrame
	}
	return getPartitionKey(b), record.Acks(b[partitionKeySize]), record.Batch(b[produceRequestSize:]), nil
}

// Flags of an answer to produce.
const (
	flagDuplicate = 1 << iota
	flagSynced
)

func putProduceAnswer(a record.Appended) []byte {
	b := append(make([]byte, 0, produceAnswerSize), answerOK)
	b = binary.BigEndian.AppendUint64(b, uint64(a.BaseOffset))
	b = binary.BigEndian.AppendUint32(b, uint32(a.LeaderEpoch))
	var flags byte
	if a.Duplicate {
		flags |= flagDuplicate
	}
	if a.Synced {
		flags |= flagSynced
	}
	return append(b, flags)
}

func getProduceAnswer(b []byte) (record.Appended, error) {
	b, err := answerBody(b, produceAnswerSize)
	if err != nil {
		return record.Appended{}, err
	}
	return record.Appended{
		BaseOffset:  record.Offset(binary.BigEndian.Uint64(b)),
		LeaderEpoch: record.LeaderEpoch(binary.BigEndian.Uint32(b[8:])),
		Duplicate:   b[12]&flagDuplicate != 0,
		Synced:      b[12]&flagSynced != 0,
	}, nil
}

// fetchRequest asks for batches, and to wait for the first one.
type fetchRequest struct {
	key      partitionKey
	from     record.Offset
	maxBytes int
	wait     time.Duration // whole milliseconds
	iso      record.Isolation
}

func (r fetchRequest) put() []byte {
	b := r.key.put(make([]byte, 0, fetchRequestSize))
	b = binary.BigEndian.AppendUint64(b, uint64(r.from))
	b = binary.BigEndian.AppendUint32(b, uint32(r.maxBytes))
	b = binary.BigEndian.AppendUint32(b, uint32(r.wait.Milliseconds()))
	return append(b, byte(r.iso))
}

func getFetchRequest(b []byte) (fetchRequest, error) {
	if len(b) != fetchRequestSize {
		return fetchRequest{}, errFrame
	}
	rest := b[partitionKeySize:]
	return fetchRequest{
		key:      getPartitionKey(b),
		from:     record.Offset(binary.BigEndian.Uint64(rest)),
		maxBytes: int(binary.BigEndian.Uint32(rest[8:])),
		wait:     time.Duration(binary.BigEndian.Uint32(rest[12:])) * time.Millisecond,
		iso:      record.Isolation(rest[16]),
	}, nil
}

func putFetchAnswer(f record.Fetched) [][]byte {
	b := append(make([]byte, 0, fetchAnswerSize), answerOK)
	b = binary.BigEndian.AppendUint64(b, uint64(f.StartOffset))
	b = binary.BigEndian.AppendUint64(b, uint64(f.LastStableOffset))
	b = binary.BigEndian.AppendUint64(b, uint64(f.HighWatermark))
	b = binary.BigEndian.AppendUint64(b, uint64(f.Next))
	bufs := append(make([][]byte, 0, 1+len(f.Batches)), b)
	for _, batch := range f.Batches {
		bufs = append(bufs, batch)
	}
	return bufs
}

// getFetchAnswer returns batches that lie in b.
func getFetchAnswer(b []byte) (record.Fetched, error) {
	b, err := answerBody(b, fetchAnswerSize)
	if err != nil {
		return record.Fetched{}, err
	}
	f := record.Fetched{
		StartOffset:      record.Offset(binary.BigEndian.Uint64(b)),
		LastStableOffset: record.Offset(binary.BigEndian.Uint64(b[8:])),
		HighWatermark:    record.Offset(binary.BigEndian.Uint64(b[16:])),
		Next:             record.Offset(binary.BigEndian.Uint64(b[24:])),
	}
	for rest := b[32:]; len(rest) > 0; {
		var batch record.Batch
		if batch, rest, err = record.Split(rest); err != nil {
			return record.Fetched{}, err
		}
		f.Batches = append(f.Batches, batch)
	}
	return f, nil
}
