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
