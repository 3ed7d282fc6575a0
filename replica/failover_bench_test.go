package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// BenchmarkWriteGap measures how long nobody can write after the death of a
// leader, with the default timeouts: from the death to the answer, by a new leader,
// to an append that is tried again and again. docs/failover.md has the numbers.
//
//	go test ./replica -run '^$' -bench WriteGap -benchtime 30x
func BenchmarkWriteGap(b *testing.B) {
	for _, death := range []struct {
		name string
		dies func(c *trio, node string)
	}{
		{"its process ends", func(c *trio, node string) { c.die(node, processEnd) }},
		{"its machine vanishes", func(c *trio, node string) { c.net.Isolate(node) }},
	} {
		b.Run(death.name, func(b *testing.B) {
			c := startTrio(b, &trio{timeout: Config{}.withDefaults().ElectionTimeout}, "a", "b", "c")
			next := record.Sequence(0)
			var gaps []time.Duration
			for b.Loop() {
				b.StopTimer()
				h := c.leader()
				lead := h.Status().Node
				rest := others(c, h)
				for _, node := range rest {
					c.values(c.live[node], record.Offset(next))
				}
				b.StartTimer()
				died := time.Now()
				death.dies(c, lead)
				c.writeUntilTaken(next, rest)
				gaps = append(gaps, time.Since(died))
				next++
				b.StopTimer()
				c.net.Heal()
				if c.live[lead] == nil {
					c.start(lead)
				}
				b.StartTimer()
			}
			slices.Sort(gaps)
			b.ReportMetric(float64(gaps[len(gaps)/2].Milliseconds()), "ms/median")
			b.ReportMetric(float64(gaps[len(gaps)*99/100].Milliseconds()), "ms/p99")
		})
	}
}

// writeUntilTaken tries one batch at all nodes until one takes it.
func (c *trio) writeUntilTaken(seq record.Sequence, among []string) {
	batch := buildBatch(c.t, 1, 0, seq, 1)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		for _, node := range among {
			h := c.live[node]
			if lead, _ := h.Leader(); lead != node {
				continue
			}
			if o := c.get(h.send(slices.Clone(batch), AppendOptions{})); o.err == nil {
				return
			}
		}
	}
}
