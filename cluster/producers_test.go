package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// TestAProducerIsForgottenByTheConfiguredAgeAndCount has others write until the first
// one is told that nobody knows it.
func TestAProducerIsForgottenByTheConfiguredAgeAndCount(t *testing.T) {
	for name, configs := range map[string]func(*Config){
		"age":   func(cfg *Config) { cfg.ProducerExpiry = time.Millisecond },
		"count": func(cfg *Config) { cfg.MaxProducers = 4 },
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, configs, "a")
			c.create("orders", 1)
			n, tp := c.node("a"), part("orders", 0)
			first := c.writer(n, tp)
			first.send(n, "one")
			c.until("it is forgotten", func() bool {
				c.writer(n, tp).send(n, "another")
				next := *first
				next.sequence = next.sequence.Add(1) // a gap, which only who is known leaves
				_, err := appendOnce(c.ctx(), n, tp, next.batch("three"), record.AckQuorum)
				var order *record.OutOfOrderError
				require.ErrorAs(t, err, &order)
				return order.Unknown
			})
		})
	}
	_, err := Open(t.Context(), Config{ProducerExpiry: -1, MaxProducers: -1})
	require.ErrorContains(t, err, "ProducerExpiry is")
	require.ErrorContains(t, err, "MaxProducers is")
	require.ErrorIs(t, err, record.ErrInvalid)
}
