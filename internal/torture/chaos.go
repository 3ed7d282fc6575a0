package torture

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// chaos injects faults one after the other and mends them later. It is one
// goroutine.
type chaos struct {
	fleet  *fleet
	rng    *rand.Rand
	faults map[string]int
	mends  []mend
	dark   *machine // the last one that lost power, until it has caught up; if Relaxed
}

// mend is the end of a fault.
type mend struct {
	due     time.Time
	machine *machine // that cannot do its part meanwhile; nil for a fault of the network
	do      func()
	done    <-chan struct{} // the fault is over by then, if not nil
}

// run injects faults until ctx ends or something is found, and then mends all.
func (c *chaos) run(ctx context.Context) {
	faults, total := c.choice()
	temper := c.fleet.cfg.temper()
	for !c.fleet.history.found() && pause(ctx, 10*time.Millisecond+c.upTo(temper.calm)) {
		c.mendDue()
		n := c.rng.IntN(total)
		i := slices.IndexFunc(faults, func(f fault) bool { n -= f.weight; return n < 0 })
		f := faults[i]
		m := c.healthy()
		// Now and then more than a minority is broken, for a moment.
		if m == nil || (f.costs == costsTime || f.costs == costsPower) && c.budget() <= 0 && c.rng.IntN(25) > 0 {
			continue
		}
		if c.fleet.cfg.Relaxed && f.costs >= costsPower {
			if f.costs == costsAllPower || !c.light(ctx, m) {
				continue
			}
			c.dark = m
		}
		c.faults[f.name]++
		// The end of ctx ends the faults, not a node that is being started.
		f.inject(c, context.WithoutCancel(ctx), m)
	}
	c.mendAll()
}

// light reports whether nobody but m lacks anything that was acknowledged or seen.
func (c *chaos) light(ctx context.Context, m *machine) bool {
	if c.dark == nil || c.dark == m {
		return true
	}
	n := c.dark.node.Load()
	if n == nil || slices.ContainsFunc(c.mends, func(e mend) bool { return e.machine == c.dark }) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	for _, tp := range partitions() {
		last := c.fleet.history.known(tp) - 1
		if last < c.fleet.history.start(tp) {
			continue
		}
		if _, err := n.FetchNear(ctx, tp, last, 1, record.ReadUncommitted); err != nil {
			return false
		}
	}
	return true
}

// choice returns the faults to inject, and their weights together.
func (c *chaos) choice() (chosen []fault, total int) {
	for _, f := range faults {
		if f.name == leaves && len(c.fleet.machines) <= 3 {
			continue // the others have no room for what it holds
		}
		if only := c.fleet.cfg.Only; len(only) == 0 || slices.Contains(only, f.name) {
			chosen = append(chosen, f)
			total += f.weight
		}
	}
	return chosen, total
}

func (c *chaos) step(format string, args ...any) { c.fleet.story.step(format, args...) }

// rebootSeed is mostly random; 0 loses all that was not synced, 1 nothing.
func (c *chaos) rebootSeed() uint64 {
	if c.rng.IntN(3) > 0 {
		return uint64(c.rng.IntN(2))
	}
	return c.rng.Uint64()
}

// budget is how many more machines may be broken.
func (c *chaos) budget() int {
	n := (len(c.fleet.machines) - 1) / 2
	for _, e := range c.mends {
		if e.machine != nil {
			n--
		}
	}
	return n
}

// later mends a fault in a while; sooner if it costs the quorum.
func (c *chaos) later(m *machine, do func()) {
	most := c.fleet.cfg.temper().outage
	if m != nil && c.budget() <= 0 {
		most = min(most, 600*time.Millisecond)
	}
	c.mends = append(c.mends, mend{due: time.Now().Add(50*time.Millisecond + c.upTo(most)), machine: m, do: do})
}

func (c *chaos) upTo(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }

// heal mends the network in a while; that ends all its faults at once.
func (c *chaos) heal(m *machine) {
	c.later(m, func() {
		c.step("heal the network")
		c.fleet.network.Heal()
	})
}

// mendDue mends what is due; mendAll, everything. What ends by itself may need
// that all else is mended.
func (c *chaos) mendDue() { c.mendUntil(time.Now()) }

func (c *chaos) mendAll() {
	c.mendUntil(time.Now().Add(time.Hour))
	for _, e := range c.mends {
		<-e.done
	}
	c.mends = nil
}

func (c *chaos) mendUntil(now time.Time) {
	due := c.mends
	c.mends = nil
	for _, e := range due {
		over := !e.due.After(now)
		if e.done != nil {
			select {
			case <-e.done:
			default:
				over = false
			}
		}
		if over {
			e.do()
		} else {
			c.mends = append(c.mends, e)
		}
	}
}

// healthy returns a machine that nothing is wrong with, nil if there is none.
func (c *chaos) healthy() *machine {
	var ms []*machine
	for _, m := range c.fleet.machines {
		if !slices.ContainsFunc(c.mends, func(e mend) bool { return e.machine == m }) && m.node.Load() != nil {
			ms = append(ms, m)
		}
	}
	if len(ms) == 0 {
		return nil
	}
	return ms[c.rng.IntN(len(ms))]
}

// other returns another machine, in whatever state, or m if there is no other.
func (c *chaos) other(m *machine) *machine {
	for _, o := range c.shuffled() {
		if o != m {
			return o
		}
	}
	return m
}

func (c *chaos) shuffled() []*machine {
	ms := slices.Clone(c.fleet.machines)
	c.rng.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	return ms
}
