package main

import "strings"

// scenarios returns all there are, in the table's order.
func scenarios() []scenario {
	all := []scenario{p1(), p2(), p3(), p4(), p5(), p6(), p7(), p8(), p9()}
	all = append(all, p10()...)
	all = append(all, p11()...)
	all = append(all, p12(), p13())
	all = append(all, p14()...)
	return append(all, machine()...)
}

// pick returns the scenarios that only names, separated by commas; "P10" stands for
// P10/1, P10/10 and so on too. "" is all.
func pick(all []scenario, only string) []scenario {
	if only == "" {
		return all
	}
	var some []scenario
	for _, s := range all {
		for name := range strings.SplitSeq(only, ",") {
			if family, _, _ := strings.Cut(s.id, "/"); strings.EqualFold(name, s.id) || strings.EqualFold(name, family) {
				some = append(some, s)
				break
			}
		}
	}
	return some
}
