package group

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// TestTheBytesOfEachRecord pins format version 1, as the package comment shows it.
func TestTheBytesOfEachRecord(t *testing.T) {
	d := newDesk(t, 2)
	d.must(Request{
		Op: OpJoin, Member: "a", Client: "host-7", Topics: []string{"t"},
		SessionTimeout: 10 * time.Second, Assignor: Range,
	})
	d.must(Request{Op: OpCommit, Member: "a", Generation: 1, Offsets: []Offset{{TopicPartition: tp("t", 1), Offset: 42, Metadata: "note"}}})
	d.leave("a")
	var got [][2]string
	for _, r := range d.log {
		require.Equal(t, noon, r.Time)
		got = append(got, [2]string{string(r.Key), string(r.Value)})
	}
	require.Equal(t, [][2]string{
		{`{"k":"member","g":"g","m":"a"}`, `{"v":1,"client":"host-7","topics":["t"],"session":10000,"assignor":"range"}`},
		{`{"k":"group","g":"g"}`, `{"v":1,"gen":1,"topics":{"t":2},"target":{"a":{"t":[0,1]}}}`},
		{`{"k":"owner","g":"g","t":"t"}`, `{"v":1,"member":"a","since":1}`},
		{`{"k":"owner","g":"g","t":"t","p":1}`, `{"v":1,"member":"a","since":1}`},
		{`{"k":"offset","g":"g","t":"t","p":1}`, `{"v":1,"offset":42,"metadata":"note"}`},
		{`{"k":"member","g":"g","m":"a"}`, ""},
		{`{"k":"owner","g":"g","t":"t"}`, ""},
		{`{"k":"owner","g":"g","t":"t","p":1}`, ""},
		{`{"k":"group","g":"g"}`, `{"v":1,"gen":2,"topics":{"t":2},"target":{}}`},
	}, got)
	require.Nil(t, d.log[5].Value, "a tombstone has no value, not an empty one")
}

// TestTheLastRecordOfEachKeyIsEnough folds what compaction would leave.
func TestTheLastRecordOfEachKeyIsEnough(t *testing.T) {
	d := newDesk(t, 3)
	d.join("a")
	d.join("b")
	d.must(commitOf("a", 1, 0, 4))
	d.must(commitOf("a", 1, 0, 9))
	d.beat("a", 2, 0, 1)
	d.beat("b", 2)
	last := map[string]int{}
	for i, r := range d.log {
		last[string(r.Key)] = i
	}
	compacted := NewState()
	for i, r := range d.log {
		if last[string(r.Key)] == i {
			require.NoError(t, compacted.Apply(r))
		}
	}
	require.Less(t, len(last), len(d.log))
	require.Equal(t, d.state, compacted)
}

func TestRecordsThatAreNotUnderstoodAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ key, value, text string }{
		"no key":        {"", `{"v":1}`, "key"},
		"unknown kind":  {`{"k":"wish","g":"g"}`, `{"v":1}`, "kind"},
		"later version": {`{"k":"offset","g":"g","t":"t"}`, `{"v":2,"offset":1}`, "version 2"},
		"no version":    {`{"k":"member","g":"g","m":"a"}`, `{"topics":[]}`, "version 0"},
		"no JSON":       {`{"k":"owner","g":"g","t":"t"}`, `?`, "invalid"},
		"wrong type":    {`{"k":"owner","g":"g","t":"t"}`, `{"v":1,"member":7}`, "member"},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewState()
			r := record.Record{Key: []byte(c.key), Value: []byte(c.value)}
			require.ErrorContains(t, s.Apply(r), c.text)
			require.Empty(t, s.Groups())
		})
	}
}

func TestRequestsAndAnswersTravelAsJSON(t *testing.T) {
	req := Request{
		Op: OpCommit, Member: NewMember(), Generation: 3, Topics: []string{"t"}, SessionTimeout: time.Second,
		Owned: tps(1), Offsets: []Offset{{TopicPartition: tp("t", 1), Offset: 5, Metadata: "m"}}, Rewind: true,
		Partitions: tps(2), Client: "c", Assignor: Range,
	}
	data, err := json.Marshal(req)
	require.NoError(t, err)
	var got Request
	require.NoError(t, json.Unmarshal(data, &got))
	require.Equal(t, req, got)

	answer := Response{Generation: 1, Assigned: tps(0), Offsets: []Offset{{TopicPartition: tp("t", 0), Offset: record.NoOffset}}}
	data, err = json.Marshal(answer)
	require.NoError(t, err)
	var back Response
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, answer, back)
}

func TestTheStateTellsWhoIsThere(t *testing.T) {
	d := newDesk(t, 2)
	d.must(Request{Op: OpJoin, Member: "a", Client: "host-7", Topics: []string{"t"}})
	require.Equal(t, []string{"g"}, d.state.Groups())
	require.Equal(t, record.Generation(1), d.state.Generation("g"))
	require.Equal(t, []Member{{ID: "a", Client: "host-7", Topics: []string{"t"}, Assigned: tps(0, 1)}}, d.state.Members("g"))
	require.Zero(t, d.state.Generation("other"))
	require.Empty(t, d.state.Members("other"))
}
