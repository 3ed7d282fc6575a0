package main

import "fmt"

// goal is a bound that a row carries: on the first row's measure divided by the
// row's own, or on the row's own figure. The zero goal asks nothing.
type goal struct {
	bound float64
	least bool // the bound is the least that will do, not the most
	own   bool // of the row's own figure
}

// times asks that the first row's measure is at least n times the row's own.
func times(n float64) goal { return goal{bound: n, least: true} }

// within asks that the first row's measure is at most n times the row's own.
func within(n float64) goal { return goal{bound: n} }

// atMost asks that the row's own figure is at most n.
func atMost(n float64) goal { return goal{bound: n, own: true} }

// verdict says whether the goal is met, and by how much it is missed if not.
func (g goal) verdict(ratio, own float64) string {
	sign, value := "≤", ratio
	if g.least {
		sign = "≥"
	}
	if g.own {
		value = own
	}
	missed := value/g.bound - 1
	if g.least {
		missed = 1 - value/g.bound
	}
	text := fmt.Sprintf("%s %v", sign, g.bound)
	if missed <= 0 {
		return text + ": met"
	}
	return fmt.Sprintf("%s: missed by %.0f %%", text, max(1, 100*missed))
}
