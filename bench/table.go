package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// median returns the middle of what f says about the samples.
func median[T int | float64 | time.Duration](samples []sample, f func(sample) T) T {
	all := make([]T, len(samples))
	for i, s := range samples {
		all[i] = f(s)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func printHead(w io.Writer) {
	fmt.Fprintln(w, "| # | who | records/s | ratio | p50 | p99 | ratio of p50 | runs | configuration | durable at the ack |")
	fmt.Fprintln(w, "|---|---|--:|--:|--:|--:|--:|---|---|---|")
}

// printRows writes a scenario's rows. A ratio is the first row's figure divided by
// the row's own.
func printRows(w io.Writer, s scenario, results []result) {
	fmt.Fprintf(w, "| **%s** | **%s** | | | | | | | | |\n", s.id, s.title)
	first := results[0]
	for i, r := range results {
		if r.err != nil {
			fmt.Fprintf(w, "| %s | %s | failed | | | | | | %s | %s |\n", s.id, r.who, r.config, r.durable)
			continue
		}
		rate := median(r.samples, sample.perSecond)
		p50 := median(r.samples, func(s sample) time.Duration { return s.quantile(0.5) })
		p99 := median(r.samples, func(s sample) time.Duration { return s.quantile(0.99) })
		var ratio, ratioP50 string
		if i > 0 && first.err == nil {
			ratio = fmt.Sprintf("%.2f", median(first.samples, sample.perSecond)/rate)
			if p50 > 0 {
				ours := median(first.samples, func(s sample) time.Duration { return s.quantile(0.5) })
				ratioP50 = fmt.Sprintf("%.2f", float64(ours)/float64(p50))
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n",
			s.id, r.who, thousands(rate), ratio, micros(p50), micros(p99), ratioP50, r.runs(), r.config, r.durable)
	}
}

// runs says how many runs the medians are of, and what became of the others.
func (r result) runs() string {
	n := len(r.samples)
	switch {
	case r.disturbed == 0:
		return fmt.Sprint(n)
	case r.disturbed == n:
		return fmt.Sprintf("%d, all disturbed", n)
	}
	return fmt.Sprintf("%d, %d disturbed left out", n, r.disturbed)
}

func thousands(f float64) string {
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func micros(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f µs", float64(d)/float64(time.Microsecond))
}
