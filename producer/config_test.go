package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

func TestSettingsThatWeakenAPromiseAreRefusedWithTheReason(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  producer.Config
		says string // "" when it is fine
	}{
		"zero":                      {},
		"acks leader":               {producer.Config{Acks: record.AckLeader}, "set DisableIdempotence too"},
		"acks none":                 {producer.Config{Acks: record.AckNone}, "set DisableIdempotence too"},
		"acks leader, no promise":   {producer.Config{Acks: record.AckLeader, DisableIdempotence: true}, ""},
		"acks unknown":              {producer.Config{Acks: 9}, "want quorum, all, leader or none"},
		"six in flight":             {producer.Config{MaxInFlight: 6}, "only the last 5 batches"},
		"six in flight, no promise": {producer.Config{MaxInFlight: 6, DisableIdempotence: true}, ""},
		"negative in flight":        {producer.Config{MaxInFlight: -1}, "at least 1"},
		"name without idempotence":  {producer.Config{Name: "a", DisableIdempotence: true}, "means nothing"},
		"tiny batches":              {producer.Config{BatchBytes: 100}, "BatchBytes is 100"},
		"large batches":             {producer.Config{BatchBytes: replica.MaxBatchBytes}, ""},
		"larger than a partition":   {producer.Config{BatchBytes: replica.MaxBatchBytes + 1}, "BatchBytes is"},
		"buffer below a batch":      {producer.Config{BufferBytes: 1 << 10}, "at least BatchBytes"},
		"dedupe without a name":     {producer.Config{Dedupe: producer.Dedupe{Header: "id"}}, "Dedupe needs a Name"},
		"dedupe without a header":   {producer.Config{Name: "a", Dedupe: producer.Dedupe{Count: 1}}, "no Header"},
		"negative dedupe":           {producer.Config{Name: "a", Dedupe: producer.Dedupe{Header: "id", Age: -1}}, "Dedupe.Age is"},
		"dedupe":                    {producer.Config{Name: "a", Dedupe: producer.Dedupe{Header: "id"}}, ""},
		"negative timeout":          {producer.Config{DeliveryTimeout: -1}, "DeliveryTimeout is"},
		"negative linger":           {producer.Config{Linger: -1}, "Linger is"},
		"linger above timeout":      {producer.Config{Linger: time.Minute}, "less than DeliveryTimeout"},
		"unknown codec":             {producer.Config{Codec: 9}, "Codec is"},
		"unknown codec of a topic":  {producer.Config{Codecs: map[string]record.Codec{"t": 9}}, `Codecs["t"] is`},
		"no retries":                {producer.Config{NoRetries: true}, "set DisableIdempotence too"},
		"no retries, no promise":    {producer.Config{NoRetries: true, DisableIdempotence: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := producer.New(newFake(t, 1), c.cfg)
			if c.says == "" {
				require.NoError(t, err)
				require.NoError(t, p.Close(t.Context()))
				return
			}
			require.ErrorIs(t, err, record.ErrInvalid)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestDedupeNeedsAClusterThatCanBeReadFrom(t *testing.T) {
	_, err := producer.New(&instant{}, producer.Config{Name: "a", Dedupe: producer.Dedupe{Header: "id"}})
	require.ErrorIs(t, err, record.ErrInvalid)
}

func TestAllFaultsOfAConfigAreReportedAtOnce(t *testing.T) {
	err := producer.Config{MaxInFlight: 6, BatchBytes: 1, Linger: -1}.Validate()
	require.ErrorContains(t, err, "MaxInFlight")
	require.ErrorContains(t, err, "BatchBytes")
	require.ErrorContains(t, err, "Linger")
}
