package producer_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

// TestRecordsWithoutATimeGetThatOfTheMoment: also when so many come that not each of
// them asks for it.
func TestRecordsWithoutATimeGetThatOfTheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := start(t, f, producer.Config{})
		send := func(n int) {
			for range n {
				p.SendAsync(t.Context(), rec(strconv.FormatInt(time.Now().UnixMilli(), 10)), nil)
			}
		}
		for range 20 { // many in each of 20 ms
			send(700)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Hour)
		send(1)
		for range 300 { // not so many
			time.Sleep(100 * time.Microsecond)
			send(3)
		}
		require.NoError(t, p.Flush(t.Context()))
		got := f.log(record.TopicPartition{Topic: "t"}).records(t)
		require.Len(t, got, 20*700+1+300*3)
		for i, r := range got {
			want, err := strconv.ParseInt(string(r.Value), 10, 64)
			require.NoError(t, err)
			if i < 20*700 {
				require.InDelta(t, want, r.Time.UnixMilli(), 1, "record %d", i)
			} else {
				require.Equal(t, want, r.Time.UnixMilli(), "record %d", i)
			}
		}
	})
}
