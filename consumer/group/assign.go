package group

// Names of the rules that spread partitions over members.
const (
	Sticky     = "sticky"
	Range      = "range"
	RoundRobin = "roundrobin"
)
