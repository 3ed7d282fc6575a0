package producer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

// keyed returns records whose keys are in every one of 8 partitions.
func keyed() []record.Record {
	var rs []record.Record
	for k := range byte(64) {
		rs = append(rs, record.Record{Topic: "t", Key: []byte{k}, Value: []byte{k}})
	}
	return rs
}

func TestAProducerMayRefuseATopicThatHasGrownWhereKeysWouldMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		p := start(t, f, producer.Config{RefuseGrowth: true})
		sendAsync(p, keyed()...)
		require.NoError(t, p.Flush(t.Context()))

		f.grow(8)
		for _, o := range sendAsync(p, keyed()...) {
			var grown *producer.TopicGrownError
			require.ErrorAs(t, o.err, &grown)
			require.Equal(t, producer.TopicGrownError{Topic: "t", Had: 2, Have: 8}, *grown)
		}
		_, err := p.Send(t.Context(), rec("without a key"))
		require.NoError(t, err)

		fresh := start(t, f, producer.Config{RefuseGrowth: true})
		outs := sendAsync(fresh, keyed()...)
		require.NoError(t, fresh.Flush(t.Context()))
		for _, o := range outs {
			require.NoError(t, o.err, "a new producer never sent anywhere else")
		}
	})
}

func TestGrowthIsUsedUnlessItIsRefusedWhereItMovesKeys(t *testing.T) {
	for name, cfg := range map[string]producer.Config{
		"by default":           {},
		"refused, round robin": {Partitioner: producer.RoundRobin, RefuseGrowth: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 2)
				p := start(t, f, cfg)
				sendAsync(p, keyed()...)
				f.grow(8)
				require.NoError(t, p.Flush(t.Context())) // or they would join the batches from before
				outs := sendAsync(p, keyed()...)
				require.NoError(t, p.Flush(t.Context()))
				used := make(map[int32]bool)
				for _, o := range outs {
					require.NoError(t, o.err)
					used[o.res.Partition] = true
				}
				require.Len(t, used, 8)
			})
		})
	}
}

func TestAPartitionAskedForByNumberIsLookedUpAtOnce(t *testing.T) {
	f := newFake(t, 1)
	p := start(t, f, producer.Config{Partitioner: producer.Manual})
	_, err := p.Send(t.Context(), rec("0"))
	require.NoError(t, err)
	f.grow(3)
	_, err = p.Send(t.Context(), record.Record{Topic: "t", Partition: 2})
	require.NoError(t, err)
	_, err = p.Send(t.Context(), record.Record{Topic: "t", Partition: 3})
	require.ErrorIs(t, err, record.ErrUnknownTopic)
}

func TestANodeThatLagsBehindTakesNoPartitionAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 4)
		p := start(t, f, producer.Config{Partitioner: producer.Manual, Linger: 10 * time.Second})
		first := sendAsync(p, record.Record{Topic: "t", Partition: 3})
		f.grow(2) // another node is asked, which has not heard of all
		second := sendAsync(p, record.Record{Topic: "t", Partition: 0})
		f.grow(4)
		require.NoError(t, p.Flush(t.Context()))
		require.NoError(t, first[0].err)
		require.NoError(t, second[0].err)
	})
}

func TestATopicMadeAnewIsUsedWithItsNewPartitions(t *testing.T) {
	for name, n := range map[string]int{"fewer": 1, "as many": 4, "more": 8} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 4)
				p := start(t, f, producer.Config{Name: "n"})
				for _, partitions := range []int{4, n} {
					f.remake(partitions)
					outs := sendAsync(p, keyed()...)
					require.NoError(t, p.Flush(t.Context()))
					for i, o := range outs {
						require.NoError(t, o.err)
						require.EqualValues(t, producer.KeyPartition([]byte{byte(i)}, partitions), o.res.Partition)
					}
				}
				for _, try := range f.tried() {
					require.Zero(t, try.epoch, "sequences begin anew, and the identity stays")
				}
			})
		})
	}
}

// Records that were packed for the old topic are not written to the new one, where
// their keys may have other partitions.
func TestRecordsOnTheirWayToATopicThatIsMadeAnewAreGivenUp(t *testing.T) {
	for name, cfg := range map[string]producer.Config{
		"lingering": {Linger: time.Second},
		"in flight": {},
		"waiting":   {BatchBytes: 1 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 4)
				f.judge = func(record.TopicPartition, record.Batch) fate { return fate{arrive: time.Second} }
				p := start(t, f, cfg)
				lost := sendAsync(p, keyed()...)
				synctest.Wait()
				f.remake(8)
				begin := time.Now()
				require.NoError(t, p.Flush(t.Context()))
				require.LessOrEqual(t, time.Since(begin), 3*time.Second, "it does not wait for the delivery timeout")
				for _, o := range lost {
					require.ErrorIs(t, o.err, record.ErrUnknownTopic)
					require.ErrorIs(t, o.err, producer.ErrNotWritten)
				}
				outs := sendAsync(p, keyed()...)
				require.NoError(t, p.Flush(t.Context()))
				for i, o := range outs {
					require.NoError(t, o.err)
					require.EqualValues(t, producer.KeyPartition([]byte{byte(i)}, 8), o.res.Partition)
				}
			})
		})
	}
}

func TestRecordsOfADeletedTopicAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		p := start(t, f, producer.Config{})
		sendAsync(p, keyed()...)
		require.NoError(t, p.Flush(t.Context()))
		f.remake(0)
		begin := time.Now()
		_, err := p.Send(t.Context(), rec("x"))
		require.ErrorIs(t, err, record.ErrUnknownTopic)
		require.ErrorIs(t, err, producer.ErrNotWritten)
		require.Less(t, time.Since(begin), time.Second)
		_, err = p.Send(t.Context(), rec("x"))
		require.ErrorIs(t, err, record.ErrUnknownTopic)
		f.remake(1)
		_, err = p.Send(t.Context(), rec("y"))
		require.NoError(t, err)
		require.Equal(t, []string{"y"}, f.values(0))
	})
}

// Of three records in a buffer for one, the first is written, the second finds that
// the topic is gone, and the third gets room after that.
func TestARecordThatWaitsWhileItsTopicIsDeletedIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		f.judge = script(fate{answer: time.Second})
		p := start(t, f, producer.Config{BatchBytes: 1 << 10, BufferBytes: 1 << 10})
		r := alone("x")
		r.Key = []byte("k")
		first, second, third := send(t.Context(), p, r), send(t.Context(), p, r), send(t.Context(), p, r)
		f.remake(0)
		require.NoError(t, (<-first).err)
		for _, waiting := range []<-chan outcome{second, third} {
			o := <-waiting
			require.ErrorIs(t, o.err, record.ErrUnknownTopic)
			require.Equal(t, producer.NotWritten, producer.OutcomeOf(o.err))
		}
	})
}

func TestRecordsWithoutAKeyAvoidAPartitionThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 4)
		var down bool
		f.judge = func(tp record.TopicPartition, _ record.Batch) fate {
			if down && tp.Partition != 2 {
				return fate{refuse: notLeader}
			}
			return fate{}
		}
		p := start(t, f, producer.Config{})
		send := func() (to map[int32]int, failed int) {
			var outs []*outcome
			for range 50 {
				outs = append(outs, sendAsync(p, rec(string(make([]byte, 70<<10))))...) // another partition each
				synctest.Wait()
			}
			require.NoError(t, p.Flush(t.Context()))
			to = make(map[int32]int)
			for _, o := range outs {
				if o.err != nil {
					failed++
				} else {
					to[o.res.Partition]++
				}
			}
			return to, failed
		}
		down = true
		to, failed := send()
		require.Len(t, to, 1)
		require.LessOrEqual(t, failed, 3, "one for each that was not yet seen to be down")
		require.Equal(t, 50, to[2]+failed)
		down = false
		to, failed = send()
		require.Zero(t, failed)
		require.Len(t, to, 4, "they are tried again")
	})
}

func TestALayoutIsLookedUpWithEachBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := start(t, f, producer.Config{Linger: time.Second})
		for range 3 {
			sendAsync(p, keyed()...)
			require.NoError(t, p.Flush(t.Context()))
		}
		require.Equal(t, 1+3, f.looks, "once to learn of it")
	})
}
