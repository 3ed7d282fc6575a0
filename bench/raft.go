package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"go.etcd.io/bbolt"
)

const (
	raftEntry   = 64 << 10
	raftAhead   = 256 // entries in flight
	raftReady   = "ready 64 KiB entries, 256 in flight"
	syncedRaft  = "fsync on 2 of 3 copies"
	raftMembers = 3
	raftTimeout = 5 * time.Second // no disk of a busy machine shall cost the leadership
)

// raftStore is where one member of hashicorp/raft keeps its log and its votes.
type raftStore interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

func openRaftWAL(dir string) (raftStore, error) {
	return wal.Open(dir, wal.WithLogger(hclog.NewNullLogger()))
}

// openRaftBolt keeps the list of free pages as a map and in memory alone, which bbolt
// documents as faster.
func openRaftBolt(dir string) (raftStore, error) {
	return raftboltdb.New(raftboltdb.Options{
		Path:        filepath.Join(dir, "raft.db"),
		BoltOptions: &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
	})
}

// raftMember is one of three in this process.
type raftMember struct {
	*raft.Raft
	store raftStore
	fsm   raftCounter
}

// raftCounter is a state machine that only counts what it applies.
type raftCounter struct{ bytes atomic.Int64 }

func (c *raftCounter) Apply(l *raft.Log) any {
	c.bytes.Add(int64(len(l.Data)))
	return nil
}

func (c *raftCounter) ApplyBatch(logs []*raft.Log) []any {
	for _, l := range logs {
		if l.Type == raft.LogCommand {
			c.Apply(l)
		}
	}
	return make([]any, len(logs))
}

func (c *raftCounter) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("no snapshots") }
func (c *raftCounter) Restore(io.ReadCloser) error         { return errors.New("no snapshots") }

// withRaft runs what a row measures on three fresh members, with raft's own transport
// in memory, which hands entries over without encoding them.
func withRaft(open func(dir string) (raftStore, error), run func(context.Context, env, *raftMember) (sample, error)) func(context.Context, env) (sample, error) {
	return func(ctx context.Context, e env) (s sample, err error) {
		var members []*raftMember
		defer func() {
			for _, m := range members {
				err = errors.Join(err, m.Shutdown().Error())
			}
			for _, m := range members {
				err = errors.Join(err, m.store.Close())
			}
		}()
		var servers []raft.Server
		var transports []*raft.InmemTransport
		for i := range raftMembers {
			addr, t := raft.NewInmemTransportWithTimeout("", 10*time.Second)
			for _, other := range transports {
				t.Connect(other.LocalAddr(), other)
				other.Connect(addr, t)
			}
			servers = append(servers, raft.Server{ID: raft.ServerID(fmt.Sprint(i)), Address: addr})
			transports = append(transports, t)
		}
		for i, t := range transports {
			m, err := openRaft(filepath.Join(e.dir, fmt.Sprint(i)), servers[i].ID, t, servers, open)
			if err != nil {
				return sample{}, err
			}
			members = append(members, m)
		}
		leader, err := members[0].campaign(ctx)
		if err != nil {
			return sample{}, err
		}
		return run(ctx, e, leader)
	}
}

func openRaft(dir string, id raft.ServerID, t raft.Transport, servers []raft.Server, open func(string) (raftStore, error)) (*raftMember, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	store, err := open(dir)
	if err != nil {
		return nil, err
	}
	m := &raftMember{store: store}
	cached, err := raft.NewLogCache(512, store) // as many as Consul, Nomad and Vault have
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	cfg := raft.DefaultConfig()
	cfg.LocalID, cfg.Logger, cfg.NoLegacyTelemetry = id, hclog.NewNullLogger(), true
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = raftTimeout+1, raftTimeout+1, raftTimeout // see campaign
	cfg.BatchApplyCh = true
	cfg.SnapshotInterval, cfg.SnapshotThreshold = 24*time.Hour, 1<<62
	snapshots := raft.NewDiscardSnapshotStore()
	if err := raft.BootstrapCluster(cfg, cached, store, snapshots, t, raft.Configuration{Servers: servers}); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if m.Raft, err = raft.NewRaft(cfg, &m.fsm, cached, store, snapshots, t); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return m, nil
}

// campaign makes m the leader at once: a member that has heard of none, and learns of
// a shorter timeout, does not wait for it.
func (m *raftMember) campaign(ctx context.Context) (*raftMember, error) {
	cfg := m.ReloadableConfig()
	cfg.HeartbeatTimeout, cfg.ElectionTimeout = raftTimeout, raftTimeout
	if err := m.ReloadConfig(cfg); err != nil {
		return nil, err
	}
	select {
	case <-m.LeaderCh():
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// raftStream applies entries of 64 KiB that are ready, up to 256 ahead of their
// results, and counts the records that would be in them.
func raftStream(_ context.Context, e env, m *raftMember) (sample, error) {
	entry := make([]byte, raftEntry)
	for i := range entry {
		entry[i] = byte('a' + i%26)
	}
	if err := m.Apply(entry, 0).Error(); err != nil {
		return sample{}, err
	}
	ahead := make(chan raft.ApplyFuture, raftAhead)
	var entries int
	began := time.Now()
	for time.Since(began) < e.duration {
		if len(ahead) == cap(ahead) {
			if err := (<-ahead).Error(); err != nil {
				return sample{}, err
			}
		}
		ahead <- m.Apply(entry, 0)
		entries++
	}
	close(ahead)
	for f := range ahead {
		if err := f.Error(); err != nil {
			return sample{}, err
		}
	}
	s := sample{records: entries * raftEntry / e.size, took: time.Since(began)}
	return s, m.holds(int64(entries+1) * raftEntry)
}

// raftOnes applies an entry of one record and waits, again and again.
func raftOnes(_ context.Context, e env, m *raftMember) (sample, error) {
	value := e.value()
	s, err := calls(e.duration, 1, func() error { return m.Apply(value, 0).Error() })
	return s, errors.Join(err, m.holds(int64((s.records+1)*e.size)))
}

// holds fails when the leader has not applied the bytes, or has them not in its store.
func (m *raftMember) holds(bytes int64) error {
	if got := m.fsm.bytes.Load(); got != bytes {
		return fmt.Errorf("%d of %d bytes are applied", got, bytes)
	}
	last, err := m.store.LastIndex()
	if err != nil {
		return err
	}
	if last < m.AppliedIndex() {
		return fmt.Errorf("entry %d of %d is the last in the store", last, m.AppliedIndex())
	}
	return nil
}
