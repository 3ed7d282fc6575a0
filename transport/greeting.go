package transport

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// Who makes a connection says, before anything else,
//
//	"qlog", version (1 byte), service (1 byte), 2 zero bytes
//	frame hello: its id, the id it looks for, its address, and pairs of id and
//	             address of nodes it knows
//
// and gets
//
//	frame hello: id, address, pairs as above; from now on there are requests
//	frame refused: why, as text; the connection ends
//
// Strings have a count of them before all, and each its length, 16 bits.
const (
	protocolVersion = 1
	maxName         = 1 << 10 // bytes of an id or an address
	maxHello        = 1 << 20 // bytes of a greeting
)

// hello is a greeting.
type hello struct {
	from, to string
	addr     string            // of from
	known    map[string]string // addresses by id
}

func (h hello) put() []byte {
	ss := []string{h.from, h.to, h.addr}
	for id, addr := range h.known {
		ss = append(ss, id, addr)
	}
	return appendStrings(nil, ss...)
}

func getHello(b []byte) (hello, error) {
	ss, ok := readStrings(b)
	if !ok || len(ss) < 3 || len(ss)%2 == 0 || ss[0] == "" || slices.ContainsFunc(ss, func(s string) bool { return len(s) > maxName }) {
		return hello{}, fmt.Errorf("%w: a greeting that makes no sense", record.ErrCorrupt)
	}
	h := hello{from: ss[0], to: ss[1], addr: ss[2], known: map[string]string{}}
	for i := 3; i < len(ss); i += 2 {
		h.known[ss[i]] = ss[i+1]
	}
	return h, nil
}

// greet begins a connection that this node has made, and returns what the other says.
func greet(conn io.ReadWriter, svc Service, mine hello) (hello, error) {
	first := append([]byte{'q', 'l', 'o', 'g', protocolVersion, byte(svc), 0, 0}, newFrame(frameHello, 0, mine.put())...)
	if _, err := conn.Write(first); err != nil {
		return hello{}, err
	}
	f, err := readFrame(conn, maxHello)
	switch {
	case err != nil:
		return hello{}, err
	case f.kind == frameRefused:
		return hello{}, errors.New(string(f.payload))
	case f.kind != frameHello:
		return hello{}, fmt.Errorf("%w: a frame of kind %d instead of a greeting", record.ErrCorrupt, f.kind)
	}
	return getHello(f.payload)
}

// welcome answers whoever has made a connection. It refuses a node that looks for
// another than this one. mine is called when the other has said who it is.
func welcome(conn io.ReadWriter, id string, mine func(theirs hello) hello) (svc Service, theirs hello, err error) {
	refuse := func(format string, args ...any) (Service, hello, error) {
		err := fmt.Errorf(format, args...)
		_, _ = conn.Write(newFrame(frameRefused, 0, []byte(err.Error()))) // the connection ends either way
		return 0, hello{}, err
	}
	var first [8]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return 0, hello{}, err
	}
	if string(first[:4]) != "qlog" {
		return 0, hello{}, errors.New("it does not speak the protocol of quorumlog")
	}
	if first[4] != protocolVersion || first[6] != 0 || first[7] != 0 {
		return refuse("node %q speaks version %d of the protocol, not %d", id, protocolVersion, first[4])
	}
	f, err := readFrame(conn, maxHello)
	if err != nil {
		return 0, hello{}, err
	}
	if theirs, err = getHello(f.payload); err != nil {
		return 0, hello{}, err
	}
	if theirs.to != id {
		return refuse("here is node %q, not %q: check the addresses in Peers", id, theirs.to)
	}
	if theirs.from == id {
		return refuse("node %q has the id of the node it connects to: give each node its own", theirs.from)
	}
	_, err = conn.Write(newFrame(frameHello, 0, mine(theirs).put()))
	return Service(first[5]), theirs, err
}
