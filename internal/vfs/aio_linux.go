package vfs

import (
	"errors"
	"io"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxSyncs is how many syncs are with the kernel at once; more wait their turn.
// It counts against fs.aio-max-nr, 65,536 for the whole machine by default.
const maxSyncs = 256

// aio has the kernel sync files while only goroutines wait, no threads. A
// blocked thread keeps its P for up to 10 ms, so that a few files that sync at
// once stop everything else in the process.
//
// The kernel adds to an eventfd for each sync that is done; the runtime's poller
// waits for that, and aio's one goroutine then hands out the results. io_uring
// would do the same, but containers often forbid it.
type aio struct {
	ctx   uintptr // aio_context_t
	event *os.File
	slots []aioSlot
	free  chan *aioSlot // all slots that are not in use
	quit  chan struct{} // closed by close
	wg    sync.WaitGroup
}

// aioSlot is one sync on its way. The kernel gives its index back.
type aioSlot struct {
	request iocb
	result  chan int64 // 0 or a negative errno; holds one
}

// iocb is struct iocb of linux/aio_abi.h.
type iocb struct {
	data    uint64
	_       [2]uint32 // the kernel's key; flags of reads and writes
	opcode  uint16
	_       int16 // priority
	fd      uint32
	_       [4]uint64 // of reads and writes: buffer, size, offset; unused
	flags   uint32
	eventFD uint32
}

// ioEvent is struct io_event of linux/aio_abi.h.
type ioEvent struct {
	data, iocb   uint64
	result, more int64
}

const (
	iocbFDSync      = 3 // IOCB_CMD_FDSYNC
	iocbFlagEventFD = 1 // IOCB_FLAG_RESFD
)

// newAIO returns nil if the kernel or its policy does not have it.
func newAIO() *aio {
	a := &aio{slots: make([]aioSlot, maxSyncs), free: make(chan *aioSlot, maxSyncs), quit: make(chan struct{})}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil
	}
	a.event = os.NewFile(uintptr(fd), "eventfd")
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, maxSyncs, uintptr(unsafe.Pointer(&a.ctx)), 0); errno != 0 {
		_ = a.event.Close()
		return nil
	}
	for i := range a.slots {
		s := &a.slots[i]
		s.result = make(chan int64, 1)
		s.request = iocb{data: uint64(i), opcode: iocbFDSync, flags: iocbFlagEventFD, eventFD: uint32(fd)}
		a.free <- s
	}
	a.wg.Go(a.reap)
	return a
}

// errNotSubmitted says that the kernel has not taken the request: an old kernel,
// a policy against it, too many of them.
var errNotSubmitted = errors.New("not submitted")

// sync is fdatasync. The caller keeps fd open.
func (a *aio) sync(fd uintptr) error {
	var s *aioSlot
	select {
	case <-a.quit:
		return errNotSubmitted
	case s = <-a.free:
	}
	defer func() { a.free <- s }()
	s.request.fd = uint32(fd)
	list := &s.request
	// It takes the request and returns: a raw call, which costs the scheduler nothing.
	if n, _, errno := unix.RawSyscall(unix.SYS_IO_SUBMIT, a.ctx, 1, uintptr(unsafe.Pointer(&list))); errno != 0 || n != 1 {
		return errNotSubmitted
	}
	return s.wait()
}

func (s *aioSlot) wait() error {
	if result := <-s.result; result < 0 {
		return unix.Errno(-result)
	}
	return nil
}

// reap hands out results until close.
func (a *aio) reap() {
	var (
		count  [8]byte // of the eventfd; reading it resets it
		events [64]ioEvent
	)
	for {
		if _, err := io.ReadFull(a.event, count[:]); err != nil {
			return // closed: nothing else fails here
		}
		for n := len(events); n == len(events); {
			n = a.results(events[:])
			for _, e := range events[:n] {
				a.slots[e.data].result <- e.result
			}
		}
	}
}

// results returns how many events there are, without waiting for one.
func (a *aio) results(events []ioEvent) int {
	var now unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_IO_GETEVENTS, a.ctx, 0, uintptr(len(events)),
		uintptr(unsafe.Pointer(&events[0])), uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// close waits for the syncs under way. Later ones are not submitted.
func (a *aio) close() error {
	close(a.quit)
	for range a.slots {
		<-a.free
	}
	err := a.event.Close()
	a.wg.Wait()
	if _, _, errno := unix.Syscall(unix.SYS_IO_DESTROY, a.ctx, 0, 0); errno != 0 {
		err = errors.Join(err, os.NewSyscallError("io_destroy", errno))
	}
	return err
}
