package torture

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/quorumlog/quorumlog/record"
)

// value is the identity of a record: the n-th that a writer has sent to its
// partition, from 0.
type value struct {
	writer int32
	n      int32
}

func (v value) String() string { return fmt.Sprintf("w%d-%d", v.writer, v.n) }

// text is what is written: the partition, the value, and some ballast that
// depends on it.
func (v value) text(tp record.TopicPartition) []byte {
	ballast := strings.Repeat("*", int(v.n*37+v.writer*11)%160)
	return fmt.Appendf(nil, "%v %d %d %s", tp, v.writer, v.n, ballast)
}

// parse returns the value of a record of tp, and fails for anything that text
// has not made.
func parse(tp record.TopicPartition, b []byte) (value, error) {
	fields := strings.SplitN(string(b), " ", 4)
	if len(fields) == 4 {
		w, errW := strconv.ParseInt(fields[1], 10, 32)
		n, errN := strconv.ParseInt(fields[2], 10, 32)
		v := value{int32(w), int32(n)}
		if errW == nil && errN == nil && w >= 0 && n >= 0 && string(v.text(tp)) == string(b) {
			return v, nil
		}
	}
	return value{}, fmt.Errorf("%q is not a value of %v", b, tp)
}
