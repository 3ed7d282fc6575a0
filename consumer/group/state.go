package group

import "github.com/quorumlog/quorumlog/record"

// State is all groups that the records of a partition of __consumer_offsets
// add up to. It is pure: it knows no clock and no node.
type State struct {
	groups map[string]*groupState
}

type groupState struct{}

// NewState returns the state of an empty partition.
func NewState() *State { return &State{groups: map[string]*groupState{}} }

// Apply folds one record. An error means that this build does not understand it.
func (s *State) Apply(r record.Record) error { return nil }
