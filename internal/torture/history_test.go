package torture

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

var (
	testPart  = record.TopicPartition{Topic: "orders", Partition: 1}
	testGroup = groupPart{"billing", testPart}
	// trimmedPart is of a topic with retention.
	trimmedPart = record.TopicPartition{Topic: "metrics"}
	accounts    = record.TopicPartition{Topic: "accounts"} // takes transactions
)

// at places values one behind the other.
func at(o record.Offset, vs []value) (found []placed) {
	for i, v := range vs {
		found = append(found, placed{o + record.Offset(i), v})
	}
	return found
}

// telling is a history that a test tells what happened.
type telling struct{ *history }

func newTelling() telling { return telling{newHistory(newStory(func(string) {}))} }

// sent sends n values of writer 1.
func (h telling) sent(n int) (vs []value) {
	for range n {
		vs = append(vs, h.send(1, testPart))
	}
	return vs
}

// saw has a reader see v at offset o.
func (h telling) saw(who string, o record.Offset, v value) {
	h.read(who, record.ReadUncommitted, record.Record{Topic: testPart.Topic, Partition: testPart.Partition, Offset: o, Value: v.text(testPart)})
}

// handed hands v out at offset o to a member.
func (h telling) handed(c *claim, o record.Offset, v value) {
	h.polled(testGroup, "member", c, []record.Record{{Offset: o, Value: v.text(testPart)}})
}

// opened is a transaction with so many values of writer 1.
func (h telling) opened(n int) (*transaction, []sentValue) {
	tx := h.begins("transfer")
	for range n {
		h.sendIn(tx, 1, accounts)
	}
	return tx, tx.values
}

// sawCommitted has a reader of what is committed see v of the accounts.
func (h telling) sawCommitted(who string, o record.Offset, v value) {
	h.read(who, record.ReadCommitted, record.Record{Topic: accounts.Topic, Offset: o, Value: v.text(accounts)})
}

func batchAt(t *testing.T, o record.Offset) record.Batch {
	t.Helper()
	var b record.Builder
	require.NoError(t, b.Append(&record.Record{Value: []byte("x"), Time: time.UnixMilli(1)}))
	batch, err := b.Build(record.BatchOptions{})
	require.NoError(t, err)
	batch.Stamp(o, 1)
	return batch
}

func TestHistoryFindsEachViolation(t *testing.T) {
	for _, c := range []struct {
		name string
		want Kind // "" for none
		tell func(h telling)
	}{
		{"all is well", "", func(h telling) {
			vs := h.sent(4)
			h.acked(testPart, vs[0], 0, false)
			h.settle(testPart, vs[1], unknown)
			h.settle(testPart, vs[2], notWritten)
			h.saw("a", 0, vs[0])
			h.saw("a", 1, vs[3])
			h.acked(testPart, vs[3], 1, true)
			h.seek("a", testPart, 0)
			h.saw("a", 0, vs[0])
			h.fetched("a", testPart, record.ReadUncommitted, record.Fetched{LastStableOffset: 1, HighWatermark: 2})
			h.fetched("a", testPart, record.ReadUncommitted, record.Fetched{LastStableOffset: 2, HighWatermark: 2})
			h.reached("a", testPart, h.floor(testPart), 2)
			h.final("n1", testPart, 0, at(0, []value{vs[0], vs[3], vs[1]})) // the unknown one came late
			held := &claim{next: 0, before: record.NoOffset}
			h.handed(held, 0, vs[0])
			h.commits(testGroup, 1)
			h.committed(testGroup, 1)
			h.answered(testGroup, h.stored(testGroup), 1)
			h.finalGroup(testGroup)
		}},
		{"an acknowledged value is gone", Lost, func(h telling) {
			vs := h.sent(1)
			h.acked(testPart, vs[0], 0, false)
			h.final("n1", testPart, 0, at(0, nil))
		}},
		{"an acknowledged value without an offset is gone", Lost, func(h telling) {
			vs := h.sent(2)
			h.acked(testPart, vs[0], record.NoOffset, true)
			h.acked(testPart, vs[1], 0, false)
			h.final("n1", testPart, 0, at(0, vs[1:]))
		}},
		{"what was read is gone", Vanished, func(h telling) {
			vs := h.sent(1)
			h.settle(testPart, vs[0], unknown)
			h.saw("a", 0, vs[0])
			h.final("n1", testPart, 0, at(0, nil))
		}},
		{"a value at two offsets for one reader", Duplicate, func(h telling) {
			vs := h.sent(1)
			h.saw("a", 0, vs[0])
			h.saw("a", 1, vs[0])
		}},
		{"a value at two offsets at the end", Duplicate, func(h telling) {
			vs := h.sent(1)
			h.acked(testPart, vs[0], 0, false)
			h.final("n1", testPart, 0, at(0, []value{vs[0], vs[0]}))
		}},
		{"two readers differ about an offset", TwoValues, func(h telling) {
			vs := h.sent(2)
			h.saw("a", 0, vs[0])
			h.saw("b", 0, vs[1])
		}},
		{"an offset changes over time", TwoValues, func(h telling) {
			vs := h.sent(2)
			h.saw("a", 0, vs[0])
			h.seek("a", testPart, 0)
			h.saw("a", 0, vs[1])
		}},
		{"an ack names another offset than the log", TwoValues, func(h telling) {
			vs := h.sent(2)
			h.acked(testPart, vs[0], 1, false)
			h.acked(testPart, vs[1], 0, false)
			h.final("n1", testPart, 0, at(0, vs))
		}},
		{"acknowledged values are not in the order they were sent in", Disorder, func(h telling) {
			vs := h.sent(2)
			h.acked(testPart, vs[0], 1, false)
			h.acked(testPart, vs[1], 0, false)
			h.final("n1", testPart, 0, at(0, []value{vs[1], vs[0]}))
		}},
		{"a reader skips", Skipped, func(h telling) {
			vs := h.sent(2)
			h.saw("a", 0, vs[0])
			h.saw("a", 2, vs[1])
		}},
		{"a reader repeats", Repeated, func(h telling) {
			vs := h.sent(2)
			h.saw("a", 0, vs[0])
			h.saw("a", 0, vs[0])
		}},
		{"a record above the high watermark", PastHigh, func(h telling) {
			h.fetched("a", testPart, record.ReadUncommitted, record.Fetched{Batches: []record.Batch{batchAt(t, 5)}, HighWatermark: 5, LastStableOffset: 5})
		}},
		{"the last stable offset above the high watermark", PastHigh, func(h telling) {
			h.fetched("a", testPart, record.ReadUncommitted, record.Fetched{HighWatermark: 5, LastStableOffset: 6})
		}},
		{"the high watermark goes back", HighBack, func(h telling) {
			h.fetched("a", testPart, record.ReadUncommitted, record.Fetched{HighWatermark: 5})
			h.fetched("b", testPart, record.ReadUncommitted, record.Fetched{HighWatermark: 3})
			h.fetched("a", testPart, record.ReadUncommitted, record.Fetched{HighWatermark: 4})
		}},
		{"the log start goes back", StartBack, func(h telling) {
			h.fetched("a", trimmedPart, record.ReadUncommitted, record.Fetched{StartOffset: 3, LastStableOffset: 5, HighWatermark: 5})
			h.fetched("b", trimmedPart, record.ReadUncommitted, record.Fetched{StartOffset: 2, LastStableOffset: 5, HighWatermark: 5})
			h.fetched("a", trimmedPart, record.ReadUncommitted, record.Fetched{StartOffset: 2, LastStableOffset: 5, HighWatermark: 5})
		}},
		{"a topic that keeps all is trimmed", Overtrimmed, func(h telling) {
			h.fetched("a", testPart, record.ReadUncommitted, record.Fetched{StartOffset: 3, LastStableOffset: 5, HighWatermark: 5})
		}},
		{"a reader is told that it was overtaken and was not", BadError, func(h telling) {
			h.overtaken("a", trimmedPart, 3, 3)
		}},
		{"an acknowledged value is gone from a log that was trimmed below it", Lost, func(h telling) {
			v := h.send(1, trimmedPart)
			h.acked(trimmedPart, v, 3, false)
			h.final("n1", trimmedPart, 3, at(3, nil))
		}},
		{"a group skips more than was trimmed", GroupSkip, func(h telling) {
			v := h.send(1, trimmedPart)
			h.overtaken("a", trimmedPart, 0, 2)
			h.polled(groupPart{"billing", trimmedPart}, "member", &claim{next: 0, before: record.NoOffset},
				[]record.Record{{Offset: 3, Value: v.text(trimmedPart)}})
		}},
		{"the end is told below an acknowledged offset", StaleEnd, func(h telling) {
			vs := h.sent(1)
			h.acked(testPart, vs[0], 0, false)
			h.reached("a", testPart, h.floor(testPart), 0)
		}},
		{"a commit is forgotten", CommitBack, func(h telling) {
			h.commits(testGroup, 7)
			h.committed(testGroup, 7)
			h.answered(testGroup, h.stored(testGroup), 6)
		}},
		{"all commits are forgotten", CommitBack, func(h telling) {
			h.commits(testGroup, 7)
			h.committed(testGroup, 7)
			h.answered(testGroup, h.stored(testGroup), record.NoOffset)
		}},
		{"an offset that was told is forgotten", CommitBack, func(h telling) {
			h.commits(testGroup, 7) // its ack was lost
			h.answered(testGroup, h.stored(testGroup), 7)
			h.answered(testGroup, h.stored(testGroup), 6)
		}},
		{"a commit that nobody made", GroupSkip, func(h telling) {
			h.commits(testGroup, 7)
			h.answered(testGroup, 0, 8)
		}},
		{"a member does not begin at the committed offset", GroupSkip, func(h telling) {
			vs := h.sent(1)
			h.handed(&claim{next: 3, before: record.NoOffset}, 4, vs[0])
		}},
		{"a group commits what nobody was handed", GroupSkip, func(h telling) {
			vs := h.sent(2)
			h.handed(&claim{next: 0, before: record.NoOffset}, 0, vs[0])
			h.commits(testGroup, 2)
			h.committed(testGroup, 2)
			h.final("n1", testPart, 0, at(0, vs))
			h.finalCommitted("n1", testPart, 0, at(0, vs))
			h.finalGroup(testGroup)
		}},
		{"the last stable offset goes back", StableBack, func(h telling) {
			h.fetched("a", testPart, record.ReadUncommitted, record.Fetched{HighWatermark: 5, LastStableOffset: 3})
			h.fetched("b", testPart, record.ReadUncommitted, record.Fetched{HighWatermark: 5, LastStableOffset: 2})
			h.fetched("a", testPart, record.ReadUncommitted, record.Fetched{HighWatermark: 6, LastStableOffset: 2})
		}},
		{"a record above the last stable offset is shown as committed", PastHigh, func(h telling) {
			h.fetched("a", testPart, record.ReadCommitted, record.Fetched{Batches: []record.Batch{batchAt(t, 5)}, HighWatermark: 9, LastStableOffset: 5})
		}},
		{"a reader is shown an open transaction", OpenRead, func(h telling) {
			_, vs := h.opened(1)
			h.sawCommitted("a", 0, vs[0].value)
		}},
		{"a group is handed out an open transaction", OpenRead, func(h telling) {
			_, vs := h.opened(1)
			h.polled(groupPart{"billing", accounts}, "member", &claim{next: 0, before: record.NoOffset}, []record.Record{{Value: vs[0].text(accounts)}})
		}},
		{"a reader is shown an aborted transaction", AbortedRead, func(h telling) {
			tx, vs := h.opened(1)
			h.ended(tx, txAborted)
			h.sawCommitted("a", 0, vs[0].value)
		}},
		{"a transaction is aborted that a reader was shown", AbortedRead, func(h telling) {
			tx, vs := h.opened(1)
			h.ends(tx)
			h.sawCommitted("a", 0, vs[0].value)
			h.ended(tx, txAborted)
		}},
		{"an aborted transaction is there at the end", AbortedRead, func(h telling) {
			tx, vs := h.opened(2)
			h.ended(tx, txAborted)
			h.finalTransactions("n1", map[sentValue]bool{vs[1]: true})
		}},
		{"a part of a committed transaction is gone", Torn, func(h telling) {
			tx, vs := h.opened(2)
			h.ends(tx)
			h.ended(tx, txCommitted)
			h.finalTransactions("n1", map[sentValue]bool{vs[0]: true})
		}},
		{"a part of a transaction with an unknown outcome is gone", Torn, func(h telling) {
			tx, vs := h.opened(2)
			h.ends(tx)
			h.ended(tx, txUnknown)
			h.finalTransactions("n1", map[sentValue]bool{vs[1]: true})
		}},
		{"a committed transaction is gone", Lost, func(h telling) {
			tx, _ := h.opened(2)
			h.ends(tx)
			h.ended(tx, txCommitted)
			h.finalTransactions("n1", nil)
		}},
		{"a transaction is gone that a reader was shown", Vanished, func(h telling) {
			tx, vs := h.opened(2)
			h.ends(tx)
			h.sawCommitted("a", 0, vs[0].value)
			h.ended(tx, txUnknown)
			h.finalTransactions("n1", nil)
		}},
		{"a transaction without a result", Silent, func(h telling) {
			h.opened(1)
			h.finalTransactions("n1", nil)
		}},
		{"a record beside a transaction is not shown as committed", Lost, func(h telling) {
			v := h.send(1, accounts)
			h.settle(accounts, v, unknown)
			h.final("n1", accounts, 0, at(0, []value{v}))
			h.finalCommitted("n1", accounts, 0, nil)
		}},
		{"a record is committed that is not there", Vanished, func(h telling) {
			v := h.send(1, accounts)
			h.settle(accounts, v, unknown)
			h.final("n1", accounts, 0, nil)
			h.finalCommitted("n1", accounts, 0, at(0, []value{v}))
		}},
		{"a reader leaps over what is committed", Skipped, func(h telling) {
			vs := []value{h.send(1, accounts), h.send(1, accounts)}
			h.sawCommitted("a", 1, vs[1])
			h.final("n1", accounts, 0, at(0, vs))
			h.finalCommitted("n1", accounts, 0, at(0, vs))
			h.finalLeaps()
		}},
		{"a reader of all leaps over what was aborted", Skipped, func(h telling) {
			tx, vs := h.opened(1)
			h.ended(tx, txAborted)
			v := h.send(2, accounts)
			h.read("a", record.ReadUncommitted, record.Record{Topic: accounts.Topic, Offset: 1, Value: v.text(accounts)})
			h.final("n1", accounts, 0, at(0, []value{vs[0].value, v}))
			h.finalLeaps()
		}},
		{"reported as not written, and there", Lie, func(h telling) {
			vs := h.sent(1)
			h.settle(testPart, vs[0], notWritten)
			h.final("n1", testPart, 0, at(0, vs))
		}},
		{"a record without a result", Silent, func(h telling) {
			h.sent(1)
			h.final("n1", testPart, 0, at(0, nil))
		}},
		{"a record with two results", BadError, func(h telling) {
			vs := h.sent(1)
			h.settle(testPart, vs[0], unknown)
			h.settle(testPart, vs[0], unknown)
		}},
		{"bytes that nobody has written", BadData, func(h telling) {
			h.read("a", record.ReadUncommitted, record.Record{Topic: testPart.Topic, Partition: testPart.Partition, Value: []byte("orders/1 1 0 *")})
		}},
		{"a value of another partition", BadData, func(h telling) {
			vs := h.sent(1)
			other := record.TopicPartition{Topic: "orders", Partition: 2}
			h.read("a", record.ReadUncommitted, record.Record{Topic: testPart.Topic, Partition: testPart.Partition, Value: vs[0].text(other)})
		}},
		{"a value that was not sent yet", BadData, func(h telling) {
			h.sent(1)
			h.saw("a", 0, value{1, 1})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newTelling()
			c.tell(h)
			report := h.report()
			if c.want == "" {
				require.Empty(t, report.Violations)
				return
			}
			require.True(t, report.Has(c.want), "%v", report.Violations)
			require.True(t, h.found())
		})
	}
}

func TestWhatRetentionHasTrimmedIsNotLost(t *testing.T) {
	h := newTelling()
	var vs []value
	for o := range record.Offset(4) {
		v := h.send(1, trimmedPart)
		h.acked(trimmedPart, v, o, false)
		vs = append(vs, v)
	}
	saw := func(o record.Offset) {
		h.read("a", record.ReadUncommitted, record.Record{Topic: trimmedPart.Topic, Partition: trimmedPart.Partition, Offset: o, Value: vs[o].text(trimmedPart)})
	}
	saw(0)
	h.overtaken("a", trimmedPart, 1, 2)
	h.seek("a", trimmedPart, 2)
	saw(2)
	group := groupPart{"billing", trimmedPart}
	h.polled(group, "member", &claim{next: 1, before: record.NoOffset}, []record.Record{{Offset: 2, Value: vs[2].text(trimmedPart)}})
	h.polled(group, "member", &claim{next: 3, before: record.NoOffset}, []record.Record{{Offset: 3, Value: vs[3].text(trimmedPart)}})
	h.commits(group, 4)
	h.committed(group, 4)
	h.final("n1", trimmedPart, 2, at(2, vs[2:]))
	h.finalGroup(group)
	report := h.report()
	require.Empty(t, report.Violations)
	require.Equal(t, 1, report.Overtaken)
	require.Equal(t, 2, report.Trimmed)
}

func TestTransactionsThatKeepTheirPromiseAreNoViolation(t *testing.T) {
	h := newTelling()
	h.read("b", record.ReadUncommitted, record.Record{Topic: accounts.Topic, Value: h.send(2, accounts).text(accounts)})
	h.settle(accounts, value{2, 0}, unknown)
	dropped, d := h.opened(1)
	h.ended(dropped, txAborted)
	tx, vs := h.opened(2)
	h.ends(tx)
	h.ended(tx, txCommitted)
	lost, _ := h.opened(2)
	h.ends(lost)
	h.ended(lost, txUnknown)

	// 0 is beside all transactions, 1 aborted, 2 and 5 markers, 3 and 4 committed.
	h.fetched("a", accounts, record.ReadCommitted, record.Fetched{Batches: []record.Batch{batchAt(t, 4)}, HighWatermark: 9, LastStableOffset: 5})
	h.sawCommitted("a", 0, value{2, 0})
	h.sawCommitted("a", 3, vs[0].value)
	h.sawCommitted("a", 4, vs[1].value)
	h.polled(groupPart{"billing", accounts}, "member", &claim{next: 1, before: record.NoOffset}, []record.Record{{Offset: 3, Value: vs[0].text(accounts)}})
	all := []placed{{0, value{2, 0}}, {1, d[0].value}, {3, vs[0].value}, {4, vs[1].value}}
	committed := []placed{all[0], all[2], all[3]}
	h.final("n1", accounts, 0, all)
	visible := map[sentValue]bool{}
	for _, v := range h.finalCommitted("n1", accounts, 0, committed) {
		visible[v] = true
	}
	h.finalTransactions("n1", visible)
	h.finalLeaps()
	require.EqualValues(t, 5, h.lastShown(accounts, record.ReadCommitted))
	require.Empty(t, h.report().Violations)
}

func TestValuesAreParsedAsTheyWereWritten(t *testing.T) {
	for n := range int32(300) {
		v := value{n % 7, n}
		got, err := parse(testPart, v.text(testPart))
		require.NoError(t, err)
		require.Equal(t, v, got)
	}
}
