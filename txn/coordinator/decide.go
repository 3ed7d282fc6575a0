package coordinator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

const maxPast = 8 // holders that are remembered as replaced

var (
	// errFinishing asks to wait until the verdict has reached everybody, and to
	// decide again then.
	errFinishing = errors.New("the transaction before is being finished")
	// errNeedID asks for an unused producer id.
	errNeedID = errors.New("a producer id is needed")
)

// decision is one being made about one transactional id.
type decision struct {
	id    string
	now   time.Time
	t     *transaction      // as it is; nil for one that is dead
	fresh record.ProducerID // unused, if above NoProducerID
	req   Request

	forgetful bool // Config.Forgetful
}

// decide returns what the id must become before the answer is true, nil when
// nothing must change, and the answer. It changes nothing. delivered is the identity
// of the last verdict that every participant has: what is prepared under it counts
// as complete, for whatever is written next says so.
func (s *State) decide(id string, req Request, fresh record.ProducerID, delivered Response, now time.Time) (*transaction, Response, error) {
	d := decision{id: id, now: now, t: s.transactions[id], fresh: fresh, req: req, forgetful: s.forgetful}
	if d.t != nil && d.t.heard(delivered) && d.t.lasts() {
		d.t = d.t.completed(now)
	}
	var next *transaction
	var err error
	switch req.Op {
	case OpTake:
		next, err = d.take()
	case OpAdd:
		next, err = d.add()
	case OpEnd:
		next, err = d.end()
	case OpAbort:
		next, err = d.abort()
	default:
		err = fmt.Errorf("operation %q: %w", req.Op, record.ErrInvalid)
	}
	if err != nil {
		return nil, Response{}, err
	}
	then := d.t
	if next != nil {
		then = next
	}
	return next, Response{Producer: then.Producer, Epoch: then.Epoch}, nil
}

// change returns a copy of the transaction to be written.
func (d *decision) change() *transaction {
	next := *d.t
	next.Updated = d.now.UnixMilli()
	return &next
}

// take gives the id to a holder.
func (d *decision) take() (*transaction, error) {
	timeout := d.req.Timeout.Milliseconds()
	if timeout == 0 {
		timeout = defaultTimeout.Milliseconds()
	}
	if d.t == nil {
		if d.fresh < 0 {
			return nil, errNeedID
		}
		return &transaction{
			Status: Empty, Producer: d.fresh, Holder: d.req.Holder, Timeout: timeout,
			Updated: d.now.UnixMilli(), LastProducer: record.NoProducerID,
		}, nil
	}
	if slices.Contains(d.t.Past, d.req.Holder) {
		return nil, d.fenced()
	}
	if d.t.Status.prepared() {
		return nil, errFinishing
	}
	if d.t.Holder == d.req.Holder && d.t.Status != Ongoing && d.t.Timeout == timeout && !d.forgetful {
		return nil, nil
	}
	next := d.change()
	next.Timeout = timeout
	if d.t.Holder != d.req.Holder {
		next.Holder = d.req.Holder
		next.Past = append(slices.Clone(d.t.Past), d.t.Holder)
		next.Past = next.Past[max(0, len(next.Past)-maxPast):]
	}
	if d.t.Status == Ongoing {
		next.Timeout = d.t.Timeout
		return d.abandon(next), nil
	}
	if d.forgetful {
		return d.renew(next, lastEpoch+1)
	}
	if d.t.Holder == d.req.Holder {
		return next, nil
	}
	return d.renew(next, next.Epoch+1)
}

// renew sets the epoch, or a new producer id when there is none left.
func (d *decision) renew(next *transaction, epoch record.ProducerEpoch) (*transaction, error) {
	if epoch >= 0 && epoch <= lastEpoch {
		next.Epoch = epoch
		return next, nil
	}
	if d.fresh < 0 {
		return nil, errNeedID
	}
	next.Producer, next.Epoch = d.fresh, 0
	return next, nil
}

// prepare makes the verdict on the transaction that is open.
func prepare(next *transaction, verdict Status) *transaction {
	next.Status = verdict
	next.LastProducer, next.LastEpoch, next.LastCommit = next.Producer, next.Epoch, verdict == PrepareCommit
	next.Epoch++
	return next
}

// abandon aborts the transaction that is open, without its holder. Later ones of
// the producer that are forgotten here are over with it where they can be reached.
func (d *decision) abandon(next *transaction) *transaction {
	next = prepare(next, PrepareAbort)
	if d.forgetful {
		next.Epoch = lastEpoch + 1
	}
	return next
}

// add takes in participants; the first ones begin the transaction.
func (d *decision) add() (*transaction, error) {
	if err := d.current(); err != nil {
		return nil, err
	}
	if d.t.Status != Ongoing {
		next := d.change()
		next.Status, next.Start = Ongoing, d.now.UnixMilli()
		join(next, d.req)
		return next, nil
	}
	known := func(tp record.TopicPartition) bool { return d.t.has(tp) }
	if !slices.ContainsFunc(d.req.Partitions, func(tp record.TopicPartition) bool { return !known(tp) }) &&
		!slices.ContainsFunc(d.req.Groups, func(g string) bool { return !slices.Contains(d.t.Groups, g) }) {
		return nil, nil
	}
	next := d.change()
	join(next, d.req)
	return next, nil
}

// join adds the participants of a request to next, which shares its maps and
// slices with what it was copied from.
func join(next *transaction, req Request) {
	next.Partitions = maps.Clone(next.Partitions)
	if next.Partitions == nil {
		next.Partitions = map[string][]int32{}
	}
	for _, tp := range req.Partitions {
		if !next.has(tp) {
			ps := append(slices.Clone(next.Partitions[tp.Topic]), tp.Partition)
			slices.Sort(ps)
			next.Partitions[tp.Topic] = ps
		}
	}
	if len(req.Groups) > 0 {
		next.Groups = slices.Compact(slices.Sorted(slices.Values(slices.Concat(next.Groups, req.Groups))))
	}
}

// end makes the verdict, or recognises that it was made.
func (d *decision) end() (*transaction, error) {
	verdict := PrepareAbort
	if d.req.Commit {
		verdict = PrepareCommit
	}
	if d.isLast() {
		switch {
		case d.t.Holder != d.req.Holder || d.t.LastCommit != d.req.Commit:
			return nil, d.ended(d.outcome())
		case d.t.Status.prepared():
			return nil, errFinishing
		case d.t.Status == Ongoing: // the next one has begun since
			return nil, d.ended(d.outcome())
		}
		return nil, nil
	}
	if err := d.current(); err != nil {
		return nil, err
	}
	switch {
	case d.t.Status == Ongoing:
		return prepare(d.change(), verdict), nil
	case d.req.Commit: // nothing was added
		return nil, d.ended("")
	}
	// An add may still be on its way. It must not begin what is given up here.
	next := d.change()
	next.Status, next.LastProducer, next.LastEpoch, next.LastCommit = CompleteAbort, d.t.Producer, d.t.Epoch, false
	return d.renew(next, next.Epoch+1)
}

// abort ends a transaction in the name of nobody.
func (d *decision) abort() (*transaction, error) {
	switch {
	case d.t == nil:
		return nil, d.ended("")
	case d.t.Status == Ongoing && d.t.Producer == d.req.Producer && d.t.Epoch == d.req.Epoch:
		return prepare(d.change(), PrepareAbort), nil
	case d.isLast() && d.t.LastCommit:
		return nil, d.ended(d.outcome())
	case d.isLast() && d.t.Status.prepared():
		return nil, errFinishing
	case d.isLast():
		return nil, nil
	}
	return nil, d.ended("")
}

// isLast reports whether the request is about the transaction that ended last.
func (d *decision) isLast() bool {
	return d.t != nil && d.t.LastProducer == d.req.Producer && d.t.LastEpoch == d.req.Epoch
}

// outcome is how the last transaction ended.
func (d *decision) outcome() Status {
	if d.t.LastCommit {
		return CompleteCommit
	}
	return CompleteAbort
}

// holder refuses a request of anybody but the holder that counts.
func (d *decision) holder() error {
	if d.t == nil {
		return d.ended("")
	}
	if d.t.Holder != d.req.Holder {
		return d.fenced()
	}
	return nil
}

// current refuses a request of anybody but the holder that counts, and about
// anything but the transaction that is open, or comes next.
func (d *decision) current() error {
	if err := d.holder(); err != nil {
		return err
	}
	switch {
	case d.t.Producer == d.req.Producer && d.t.Epoch == d.req.Epoch && d.t.Status.prepared():
		return errFinishing // it comes next, and a leader before this one knew that it may begin
	case d.t.Producer == d.req.Producer && d.t.Epoch == d.req.Epoch:
		return nil
	case d.t.Producer == d.req.Producer && d.t.Epoch < d.req.Epoch:
		// The request knows more than this state does: the node was replaced as
		// leader and has not noticed yet.
		return fmt.Errorf("transaction %q is at epoch %d here, its holder has heard of %d: %w",
			d.id, d.t.Epoch, d.req.Epoch, record.ErrNotLeader)
	case d.isLast():
		return d.ended(d.outcome())
	}
	return d.ended("")
}

func (d *decision) fenced() error {
	return &record.FencedError{
		What: fmt.Sprintf("holder %q of transactional id %q", d.req.Holder, d.id),
		Have: int64(d.req.Epoch), Want: int64(d.t.Epoch),
	}
}

func (d *decision) ended(how Status) error {
	return &EndedError{ID: d.id, Producer: d.req.Producer, Epoch: d.req.Epoch, Outcome: how}
}

// complete returns what a prepared id becomes when every participant knows the
// verdict; nil if it is not the one of that identity any more.
func (s *State) complete(id string, who Response, fresh record.ProducerID, now time.Time) (*transaction, error) {
	d := decision{id: id, now: now, t: s.transactions[id], fresh: fresh}
	if d.t == nil || !d.t.heard(who) {
		return nil, nil
	}
	next := d.t.completed(now)
	return d.renew(next, next.Epoch)
}

// heard reports whether t is prepared, and that verdict the one of an identity.
func (t *transaction) heard(who Response) bool {
	return t.Status.prepared() && t.Producer == who.Producer && t.Epoch == who.Epoch
}

// lasts reports whether t, prepared, has an epoch left for the next transaction.
func (t *transaction) lasts() bool { return t.Epoch >= 0 && t.Epoch <= lastEpoch }

// completed returns what t, prepared, becomes when everybody knows.
func (t *transaction) completed(now time.Time) *transaction {
	next := *t
	next.Updated = now.UnixMilli()
	next.Status, next.Start, next.Partitions, next.Groups = t.Status.complete(), 0, nil, nil
	return &next
}

// due returns what became of the ids whose time is over: aborted, or nil for
// forgotten. next is when to look again, zero for never.
func (s *State) due(unused time.Duration, now time.Time) (over map[string]*transaction, next time.Time) {
	over = map[string]*transaction{}
	for id, t := range s.transactions {
		var at time.Time
		switch t.Status {
		case Ongoing:
			at = t.deadline()
		case Empty, CompleteCommit, CompleteAbort:
			at = time.UnixMilli(t.Updated).Add(unused)
		default:
			continue
		}
		switch {
		case at.After(now):
			if next.IsZero() || at.Before(next) {
				next = at
			}
		case t.Status == Ongoing:
			d := decision{id: id, now: now, t: t, forgetful: s.forgetful}
			over[id] = d.abandon(d.change())
		default:
			over[id] = nil
		}
	}
	return over, next
}
