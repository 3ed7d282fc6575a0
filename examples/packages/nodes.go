package main

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"

	"github.com/quorumlog/quorumlog"
)

var nodeIDs = []string{"a", "b", "c"}

// nodes is the cluster: three nodes of one process on one network.
type nodes struct {
	dir string
	net *quorumlog.Network

	mu sync.Mutex
	up map[string]*quorumlog.Node
}

func openNodes(dir string) (*nodes, error) {
	ns := &nodes{dir: dir, net: quorumlog.NewNetwork(), up: make(map[string]*quorumlog.Node)}
	for _, id := range nodeIDs {
		if err := ns.open(id); err != nil {
			return nil, errors.Join(err, ns.close())
		}
	}
	return ns, nil
}

func (ns *nodes) open(id string) error {
	peers := make(map[string]string)
	for _, peer := range nodeIDs {
		peers[peer] = peer
	}
	n, err := quorumlog.Open(filepath.Join(ns.dir, id), quorumlog.Config{ID: id, Network: ns.net, Peers: peers})
	if err != nil {
		return err
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.up[id] = n
	return nil
}

func (ns *nodes) get(id string) *quorumlog.Node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.up[id]
}

// kill stops a node that can no longer hand its leadership over.
func (ns *nodes) kill(id string) error {
	ns.net.Isolate(id)
	ns.mu.Lock()
	n := ns.up[id]
	delete(ns.up, id)
	ns.mu.Unlock()
	return n.Close()
}

func (ns *nodes) restart(id string) error {
	ns.net.Heal()
	return ns.open(id)
}

func (ns *nodes) close() error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	var errs []error
	for id, n := range ns.up {
		errs = append(errs, n.Close())
		delete(ns.up, id)
	}
	return errors.Join(errs...)
}

// byLeads returns the nodes, those that lead the most partitions first, and how
// many partitions each leads.
func (ns *nodes) byLeads(ctx context.Context, ask string) ([]string, map[string]int, error) {
	status, err := ns.get(ask).Status(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	leads := make(map[string]int)
	for _, p := range status.Partitions {
		leads[p.Leader]++
	}
	ids := slices.Clone(nodeIDs)
	slices.SortStableFunc(ids, func(x, y string) int { return cmp.Compare(leads[y], leads[x]) })
	return ids, leads, nil
}

// ends returns where each partition ends now.
func (ns *nodes) ends(ctx context.Context) (map[int32]quorumlog.Offset, error) {
	end := make(map[int32]quorumlog.Offset)
	for r, err := range ns.get(nodeIDs[0]).Read(ctx, topic, quorumlog.FromStart(), quorumlog.UntilEnd()) {
		if err != nil {
			return nil, err
		}
		end[r.Partition] = r.Offset + 1
	}
	return end, nil
}
