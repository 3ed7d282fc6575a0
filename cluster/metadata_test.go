package cluster

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

// foldAll gives records their offsets and folds them.
func foldAll(t *testing.T, m *metadata, records []record.Record) {
	t.Helper()
	for _, r := range records {
		r.Offset = m.next
		_, err := m.fold(r)
		require.NoError(t, err)
	}
}

func TestTopicThatMakesNoSenseIsRefusedWithAReason(t *testing.T) {
	ok := TopicConfig{Name: "orders", Partitions: 3, Replicas: 3, MinInSync: 2}
	with := func(change func(*TopicConfig)) TopicConfig { c := ok; change(&c); return c }
	for name, tc := range map[string]struct {
		cfg  TopicConfig
		says string
	}{
		"empty name":            {with(func(c *TopicConfig) { c.Name = "" }), "give the topic a name"},
		"dot":                   {with(func(c *TopicConfig) { c.Name = "." }), "use another"},
		"dots":                  {with(func(c *TopicConfig) { c.Name = ".." }), "use another"},
		"slash":                 {with(func(c *TopicConfig) { c.Name = "a/b" }), "'/'"},
		"space":                 {with(func(c *TopicConfig) { c.Name = "a b" }), "' '"},
		"not ASCII":             {with(func(c *TopicConfig) { c.Name = "é" }), "'é'"},
		"long name":             {with(func(c *TopicConfig) { c.Name = strings.Repeat("x", 250) }), "at most 249"},
		"negative partitions":   {with(func(c *TopicConfig) { c.Partitions = -1 }), "at least 1"},
		"negative replicas":     {with(func(c *TopicConfig) { c.Replicas = -1 }), "at least 1"},
		"more than nodes":       {with(func(c *TopicConfig) { c.Replicas = 4 }), "ask for 3 or fewer"},
		"negative MinInSync":    {with(func(c *TopicConfig) { c.MinInSync = -1 }), "at least 1"},
		"MinInSync of too many": {with(func(c *TopicConfig) { c.MinInSync = 4 }), "there are 3 replicas"},
		"tiny segments":         {with(func(c *TopicConfig) { c.SegmentBytes = 1 }), "SegmentBytes is 1"},
		"negative flush":        {with(func(c *TopicConfig) { c.Flush = log.FlushNever - 1 }), "flush"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := newMetadata().createTopic(tc.cfg, record.NewTopicID(), []string{"a", "b", "c"})
			var invalid *InvalidTopicError
			require.ErrorAs(t, err, &invalid)
			require.ErrorIs(t, err, record.ErrInvalid)
			require.ErrorContains(t, err, tc.says)
			require.Equal(t, tc.cfg.Name, invalid.Topic)
		})
	}
	_, _, err := newMetadata().createTopic(ok, record.NewTopicID(), []string{"a", "b", "c"})
	require.NoError(t, err)
	_, _, err = newMetadata().createTopic(with(func(c *TopicConfig) { c.Partitions = 0 }), record.NewTopicID(), []string{"a", "b", "c"})
	require.NoError(t, err, "0 is the default")
	_, _, err = newMetadata().createTopic(with(func(c *TopicConfig) { c.Name = strings.Repeat("x", 249) }), record.NewTopicID(), []string{"a", "b", "c"})
	require.NoError(t, err)
}

func TestTopicIsMadeOnceHoweverOftenTheRequestComes(t *testing.T) {
	m := newMetadata()
	nodes := []string{"a", "b"}
	id := record.NewTopicID()
	made, records, err := m.createTopic(TopicConfig{Name: "orders", Partitions: 2}, id, nodes)
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, TopicConfig{Name: "orders", Partitions: 2, Replicas: 2, MinInSync: 2}, made.Config, "with its defaults")
	foldAll(t, m, records)
	require.Equal(t, made, m.topics["orders"])

	again, records, err := m.createTopic(TopicConfig{Name: "orders", Partitions: 2}, id, nodes)
	require.NoError(t, err)
	require.Empty(t, records)
	require.Equal(t, made, again)

	_, _, err = m.createTopic(TopicConfig{Name: "orders", Partitions: 2}, record.NewTopicID(), nodes)
	require.ErrorIs(t, err, record.ErrTopicExists)
	require.ErrorContains(t, err, "orders")
}

func TestProducerIDsAreNeverGivenTwice(t *testing.T) {
	m := newMetadata()
	first, records, err := m.takeProducerIDs(producerBlock)
	require.NoError(t, err)
	require.Equal(t, record.ProducerID(0), first)
	foldAll(t, m, records)

	named, records, err := m.takeProducerName("checkout")
	require.NoError(t, err)
	require.Equal(t, identity{ID: 1000}, named)
	foldAll(t, m, records)

	second, records, err := m.takeProducerIDs(producerBlock)
	require.NoError(t, err)
	require.Equal(t, record.ProducerID(1001), second)
	foldAll(t, m, records)
	require.Equal(t, record.ProducerID(2001), m.nextID)
}

func TestProducerNameKeepsItsIDAndRaisesTheEpoch(t *testing.T) {
	m := newMetadata()
	for epoch := range record.ProducerEpoch(3) {
		who, records, err := m.takeProducerName("checkout")
		require.NoError(t, err)
		require.Equal(t, identity{ID: 0, Epoch: epoch}, who)
		foldAll(t, m, records)
	}
	m.producers["checkout"] = holder{identity: identity{ID: 0, Epoch: lastProducerEpoch - 1}}
	who, records, err := m.takeProducerName("checkout")
	require.NoError(t, err)
	require.Equal(t, identity{ID: 0, Epoch: lastProducerEpoch}, who)
	foldAll(t, m, records)

	who, records, err = m.takeProducerName("checkout")
	require.NoError(t, err)
	require.Equal(t, identity{ID: 1, Epoch: 0}, who, "the epochs are used up")
	foldAll(t, m, records)
	require.Equal(t, who, m.producers["checkout"].identity)
}

func TestOnlyTheHolderOfAProducerNameRenewsIt(t *testing.T) {
	m := newMetadata()
	take := func() identity {
		who, records, err := m.takeProducerName("checkout")
		require.NoError(t, err)
		foldAll(t, m, records)
		return who
	}
	renew := func(held identity) (identity, error) {
		who, records, err := m.renewProducerName("checkout", held)
		foldAll(t, m, records)
		return who, err
	}
	_, err := renew(identity{})
	require.ErrorIs(t, err, record.ErrFenced, "nobody has the name")

	old := take()
	renewed, err := renew(old)
	require.NoError(t, err)
	require.Equal(t, identity{ID: old.ID, Epoch: old.Epoch + 1}, renewed)
	again, err := renew(old)
	require.NoError(t, err)
	require.Equal(t, renewed, again, "the first answer was lost")

	young := take()
	for _, held := range []identity{old, renewed, {ID: young.ID, Epoch: young.Epoch + 1}} {
		_, err = renew(held)
		var fenced *record.FencedError
		require.ErrorAs(t, err, &fenced)
		require.Equal(t, int64(young.Epoch), fenced.Want)
		require.Contains(t, fenced.What, "checkout")
	}
	require.Equal(t, young, m.producers["checkout"].identity, "nothing has changed for who has the name")

	m.producers["checkout"] = holder{identity: identity{ID: young.ID, Epoch: lastProducerEpoch}}
	fresh, err := renew(identity{ID: young.ID, Epoch: lastProducerEpoch})
	require.NoError(t, err)
	require.NotEqual(t, young.ID, fresh.ID, "the epochs are used up")
	require.Zero(t, fresh.Epoch)
}

func TestMetadataRecordOfAnotherVersionIsRefused(t *testing.T) {
	for name, r := range map[string]record.Record{
		"version":  {Key: []byte("topic/orders"), Value: []byte(`{"v":2}`)},
		"key":      {Key: []byte("quota/orders"), Value: []byte(`{"v":1}`)},
		"no JSON":  {Key: []byte("topic/orders"), Value: []byte(`v1`)},
		"no value": {Key: []byte("producer/orders")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newMetadata().fold(r)
			require.ErrorContains(t, err, string(r.Key))
		})
	}
}

// TestMetadataFormatIsWhatThePackageCommentSays pins version 1.
func TestMetadataFormatIsWhatThePackageCommentSays(t *testing.T) {
	m := newMetadata()
	m.founders = []string{"a", "b", "c", "d"}
	nodes, err := m.found()
	require.NoError(t, err)
	require.Len(t, nodes, 4)
	require.Equal(t, "node/a", string(nodes[0].Key))
	require.JSONEq(t, `{"v":1,"state":"active"}`, string(nodes[0].Value))
	foldAll(t, m, nodes)
	id := record.TopicID([]byte("0123456789abcdef"))
	_, records, err := m.createTopic(TopicConfig{Name: "orders", Partitions: 1}, id, []string{"a", "b"})
	require.NoError(t, err)
	require.Equal(t, "topic/orders", string(records[0].Key))
	require.JSONEq(t, `{"v":1,"topic":{"config":{"name":"orders","partitions":1,"replicas":2,"minInSync":2},
		"id":"30313233343536373839616263646566","placement":[["a","b"]]}}`, string(records[0].Value))
	foldAll(t, m, records)
	records, err = m.reassign([]Move{{Partition: part("orders", 0), To: []string{"d", "b"}}})
	require.NoError(t, err)
	foldAll(t, m, records)
	records, err = m.advance(partitionKey{id, 0}, 1, step{actionAnnounce, []string{"d"}})
	require.NoError(t, err)
	require.Equal(t, "partition/30313233343536373839616263646566/0", string(records[0].Key))
	require.JSONEq(t, `{"v":1,"replicas":["a","b","d"],"from":["a","b"],"target":["d","b"],"version":2}`, string(records[0].Value))
	records, err = m.deleteTopic("orders", id)
	require.NoError(t, err)
	require.Equal(t, "topic/orders", string(records[0].Key))
	require.Nil(t, records[0].Value)
	_, records, err = m.takeProducerName("checkout")
	require.NoError(t, err)
	require.Equal(t, "producer-ids", string(records[0].Key))
	require.JSONEq(t, `{"v":1,"next":1}`, string(records[0].Value))
	require.Equal(t, "producer/checkout", string(records[1].Key))
	require.JSONEq(t, `{"v":1,"id":0,"epoch":0}`, string(records[1].Value))
	foldAll(t, m, records)
	_, records, err = m.renewProducerName("checkout", identity{})
	require.NoError(t, err)
	require.JSONEq(t, `{"v":1,"id":0,"epoch":1,"renewed":{"id":0,"epoch":0}}`, string(records[0].Value))
}
