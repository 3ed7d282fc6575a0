package replica

import (
	"encoding/binary"
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

// command is an entry of the replicas' own. It is shorter than any batch, which
// tells the two apart, and takes no offset. Big-endian:
//
//	version u8 = 1 | type u8 | offset i64
type command struct {
	kind   commandKind
	offset record.Offset
}

type commandKind uint8

const (
	commandTrim   commandKind = 1 // offset is the new log start
	commandForget commandKind = 2 // producers whose last batch lies below offset are forgotten
)

const (
	commandVersion = 1
	commandSize    = 1 + 1 + 8
)

func isCommand(data []byte) bool { return len(data) < record.HeaderSize }

func (c command) encode() []byte {
	return binary.BigEndian.AppendUint64([]byte{commandVersion, byte(c.kind)}, uint64(c.offset))
}

func decodeCommand(b []byte) (command, error) {
	if len(b) != commandSize || b[0] != commandVersion || b[1] != byte(commandTrim) && b[1] != byte(commandForget) {
		return command{}, fmt.Errorf("command % x is unknown", b)
	}
	return command{commandKind(b[1]), record.Offset(binary.BigEndian.Uint64(b[2:]))}, nil
}
