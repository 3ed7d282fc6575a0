package group

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// join makes or changes a member.
func (d *decision) join(req Request) error {
	topics := slices.Compact(slices.Sorted(slices.Values(req.Topics)))
	m, known := d.group.members[req.Member]
	last, err := d.predecessor(req)
	if err != nil {
		return err
	}
	if !known && last == "" && len(d.group.members) >= d.maxMembers {
		return &FullError{Group: d.name, Limit: d.maxMembers}
	}
	if !known || m.client != req.Client || m.instance != req.Instance || m.session != req.SessionTimeout ||
		m.assignor != req.Assignor || !slices.Equal(m.topics, topics) {
		value := memberValue{
			V: formatVersion, Client: req.Client, Instance: req.Instance, Topics: topics,
			Session: req.SessionTimeout.Milliseconds(), Assignor: req.Assignor,
		}
		if err := d.put(key{Kind: kindMember, Member: req.Member}, value); err != nil {
			return err
		}
	}
	if last != "" {
		if err := d.inherit(last, req.Member); err != nil {
			return err
		}
	}
	if err := d.retarget(); err != nil {
		return err
	}
	return d.grant(req.Member)
}

// predecessor returns the member whose place the one that joins takes, "" if
// there is none.
func (d *decision) predecessor(req Request) (string, error) {
	if req.Instance != "" {
		for _, id := range slices.Sorted(maps.Keys(d.group.members)) {
			if d.group.members[id].instance != req.Instance || id == req.Member {
				continue
			}
			if req.Replaces != "" && req.Replaces != id { // two clients are one instance: the last one to start stays
				return "", fmt.Errorf("instance %q is member %s now: %w", req.Instance, id, d.fenced(req, d.group.generation))
			}
			return id, nil
		}
	}
	if _, ok := d.group.members[req.Replaces]; ok && req.Replaces != req.Member {
		return req.Replaces, nil
	}
	return "", nil
}

// inherit gives a member's place to another one, in a generation of its own:
// nobody else notices, and what the last one says from now on is refused.
func (d *decision) inherit(last, next string) error {
	g := d.group
	value := groupValue{V: formatVersion, Generation: g.generation + 1, Partitions: g.partitions, Made: g.made, Target: map[string]byTopic{}}
	for id, tps := range g.target {
		if id == last {
			id = next
		}
		value.Target[id] = newByTopic(tps)
	}
	var held []record.TopicPartition
	for tp, o := range g.owners {
		if o.member == last {
			held = append(held, tp)
		}
	}
	slices.SortFunc(held, record.TopicPartition.Compare)
	if err := d.put(key{Kind: kindMember, Member: last}, nil); err != nil {
		return err
	}
	if err := d.put(key{Kind: kindGroup}, value); err != nil {
		return err
	}
	for _, tp := range held {
		o := ownerValue{V: formatVersion, Member: next, Since: value.Generation}
		if err := d.put(key{Kind: kindOwner, Topic: tp.Topic, Partition: tp.Partition}, o); err != nil {
			return err
		}
	}
	return nil
}

// heartbeat takes back what the member has given up and grants what is free.
func (d *decision) heartbeat(req Request) error {
	if _, ok := d.group.members[req.Member]; !ok {
		return d.fenced(req, d.group.generation)
	}
	if err := d.current(req); err != nil {
		return err
	}
	if err := d.takeBack(req); err != nil {
		return err
	}
	if d.grown() {
		if err := d.retarget(); err != nil {
			return err
		}
	}
	return d.grant(req.Member)
}

// takeBack frees what the member should not hold and does not hold any more. A
// heartbeat from before the member heard of the current generation does not
// count: it may have been delayed since a time when a partition was on its way
// to the member, which then took it up.
func (d *decision) takeBack(req Request) error {
	g := d.group
	if req.Generation != g.generation || g.owned[req.Member] == len(g.assigned(req.Member)) {
		return nil
	}
	kept := make(map[record.TopicPartition]bool, len(req.Owned)+len(g.target[req.Member]))
	for _, tp := range req.Owned {
		kept[tp] = true
	}
	for _, tp := range g.target[req.Member] {
		kept[tp] = true
	}
	return d.free(func(tp record.TopicPartition, o owner) bool { return o.member == req.Member && !kept[tp] })
}

// free ends the ownership of partitions.
func (d *decision) free(which func(record.TopicPartition, owner) bool) error {
	var tps []record.TopicPartition
	for tp, o := range d.group.owners {
		if which(tp, o) {
			tps = append(tps, tp)
		}
	}
	slices.SortFunc(tps, record.TopicPartition.Compare)
	for _, tp := range tps {
		if err := d.put(key{Kind: kindOwner, Topic: tp.Topic, Partition: tp.Partition}, nil); err != nil {
			return err
		}
	}
	return nil
}

// grant gives the member what it should hold and nobody holds.
func (d *decision) grant(id string) error {
	for _, tp := range d.group.target[id] {
		if _, ok := d.group.owners[tp]; ok {
			continue
		}
		value := ownerValue{V: formatVersion, Member: id, Since: d.group.generation}
		if err := d.put(key{Kind: kindOwner, Topic: tp.Topic, Partition: tp.Partition}, value); err != nil {
			return err
		}
	}
	return nil
}

// leave ends memberships. What was owned is free at once. Who is no member is
// passed over.
func (d *decision) leave(ids []string) error {
	gone := map[string]bool{}
	for _, id := range ids {
		if _, ok := d.group.members[id]; ok && !gone[id] {
			gone[id] = true
			if err := d.put(key{Kind: kindMember, Member: id}, nil); err != nil {
				return err
			}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := d.free(func(_ record.TopicPartition, o owner) bool { return gone[o.member] }); err != nil {
		return err
	}
	return d.retarget()
}

// retarget makes the target what it should be for the members and topics as
// they are. If that changes it, a generation begins.
func (d *decision) retarget() error {
	g := d.group
	subscriptions := make(map[string][]string, len(g.members))
	partitions, made := map[string]int{}, map[string]record.Offset{}
	for id, m := range g.members {
		subscriptions[id] = m.topics
		for _, topic := range m.topics {
			if _, ok := partitions[topic]; !ok {
				n, number := d.count(topic)
				partitions[topic] = n
				if number > 0 {
					made[topic] = number
				}
			}
		}
	}
	for topic, had := range g.partitions {
		if _, ok := partitions[topic]; !ok && g.committed(topic) { // it may be read again
			partitions[topic] = had
			if g.made[topic] > 0 {
				made[topic] = g.made[topic]
			}
		}
	}
	target := assignNamed(g, subscriptions, partitions)
	if maps.Equal(partitions, g.partitions) && maps.Equal(made, g.made) && maps.EqualFunc(target, g.target, slices.Equal) {
		return nil
	}
	value := groupValue{V: formatVersion, Generation: g.generation + 1, Partitions: partitions, Made: made, Target: map[string]byTopic{}}
	for id, tps := range target {
		value.Target[id] = newByTopic(tps)
	}
	if err := d.begin(partitions, made); err != nil {
		return err
	}
	return d.put(key{Kind: kindGroup}, value)
}

// begin commits the start of the partitions that topics have got since the group
// has seen them. Their first records came after the group did, so no member may
// begin behind them, whatever it would do where nothing is committed.
func (d *decision) begin(partitions map[string]int, made map[string]record.Offset) error {
	for _, topic := range slices.Sorted(maps.Keys(partitions)) {
		had := d.group.partitions[topic]
		if had == 0 || made[topic] != d.group.made[topic] {
			continue // new to the group
		}
		value := offsetValue{V: formatVersion}
		if d.id != nil {
			value.TopicID = d.id(topic)
		}
		for p := int32(had); p < int32(partitions[topic]); p++ {
			k := key{Kind: kindOffset, Group: d.name, Topic: topic, Partition: p}
			if last, ok := d.group.offsets[k.topicPartition()]; ok && last.topic == value.TopicID {
				continue
			}
			r, err := encode(d.now, k, value)
			if err != nil {
				return err
			}
			d.records = append(d.records, r)
		}
	}
	return nil
}

// committed reports whether the group has an offset in a topic.
func (g *groupState) committed(topic string) bool {
	for tp := range g.offsets {
		if tp.Topic == topic {
			return true
		}
	}
	return false
}

// assignNamed is [Assign] with the members in the order of their instances, or
// their ids: a static member that comes back under a new id has its old place.
func assignNamed(g *groupState, subscriptions map[string][]string, partitions map[string]int) Target {
	name := func(id string) string {
		if m, ok := g.members[id]; ok && m.instance != "" {
			return "instance " + m.instance
		}
		return "member " + id
	}
	ids := map[string]string{}
	named := map[string][]string{}
	for id, topics := range subscriptions {
		ids[name(id)], named[name(id)] = id, topics
	}
	last := Target{}
	for id, tps := range g.target {
		last[name(id)] = tps
	}
	target := Target{}
	for n, tps := range Assign(g.rule(), named, partitions, last) {
		target[ids[n]] = tps
	}
	return target
}

// count returns how many partitions a topic has, and its number. A node that knows
// of fewer than the group has seen lags behind, or of a lower number; with a higher
// number it is another topic.
func (d *decision) count(topic string) (n int, made record.Offset) {
	n = d.partitions(topic)
	if d.made != nil {
		made = d.made(topic)
	}
	switch seen := d.group.made[topic]; {
	case made > seen && seen > 0:
		return n, made
	case made < seen:
		return d.group.partitions[topic], seen
	}
	return max(n, d.group.partitions[topic]), made
}

// grown reports whether a topic that members read has got partitions, or was made anew.
func (d *decision) grown() bool {
	for topic, had := range d.group.partitions {
		if n, made := d.count(topic); (n != had || made != d.group.made[topic]) && d.group.reads(topic) {
			return true
		}
	}
	return false
}

// reads reports whether a member reads a topic.
func (g *groupState) reads(topic string) bool {
	for _, m := range g.members {
		if contains(m.topics, topic) {
			return true
		}
	}
	return false
}

// rule returns the assignor most members ask for.
func (g *groupState) rule() string {
	votes := map[string]int{}
	for _, m := range g.members {
		votes[cmp.Or(m.assignor, Sticky)]++
	}
	best := Sticky
	for _, rule := range []string{Range, RoundRobin} {
		if votes[rule] > votes[best] {
			best = rule
		}
	}
	return best
}
