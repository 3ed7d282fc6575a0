package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	tidwall "github.com/tidwall/wal"
	"go.etcd.io/bbolt"
)

// What a record stands on when a store has taken it. An unsynced write of pebble's
// waits in its memory until a page of its WAL is full.
const (
	syncedStore    = "fsync on the one store"
	pebbleBuffered = "memory of the one store"
)

// storeLotBytes is how much goes into one write of a store: as much as into a batch of
// quorumlog's, and none of them is faster with more.
const (
	storeLotBytes = 1 << 20
	storeLot      = "writes of 1 MiB"
)

// store is a library for one process and one disk, used as a log: records get the
// numbers from 1 on.
type store interface {
	add(number uint64, value []byte) error // to the lot
	commit() error                         // the lot
	one(number uint64, value []byte) error
	last() (uint64, error)
	Close() error
}

// withStore runs what a row measures on a fresh store.
func withStore(open func(dir string, sync bool) (store, error), sync bool, run func(env, store) (sample, error)) func(context.Context, env) (sample, error) {
	return func(_ context.Context, e env) (sample, error) {
		st, err := open(filepath.Join(e.dir, "store"), sync)
		if err != nil {
			return sample{}, err
		}
		s, err := run(e, st)
		return s, errors.Join(err, st.Close())
	}
}

// storeLots passes records one by one into lots, each of which is one write.
func storeLots(e env, st store) (sample, error) {
	value, number, lot := e.value(), uint64(0), uint64(storeLotBytes/e.size)
	s, err := stream(e.duration, func() error {
		number++
		if err := st.add(number, value); err != nil || number%lot > 0 {
			return err
		}
		return st.commit()
	}, st.commit)
	return s, errors.Join(err, storeHolds(st, number))
}

// storeOnes writes one record, again and again.
func storeOnes(e env, st store) (sample, error) {
	value, number := e.value(), uint64(0)
	s, err := calls(e.duration, 1, func() error {
		number++
		return st.one(number, value)
	})
	return s, errors.Join(err, storeHolds(st, number))
}

func storeHolds(st store, number uint64) error {
	if last, err := st.last(); err != nil || last != number {
		return errors.Join(err, fmt.Errorf("the store has records up to %d, not %d", last, number))
	}
	return nil
}

func storeKey(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

// tidwallStore is github.com/tidwall/wal.
type tidwallStore struct {
	*tidwall.Log
	lot tidwall.Batch
}

func openTidwall(dir string, sync bool) (store, error) {
	l, err := tidwall.Open(dir, &tidwall.Options{NoSync: !sync, SegmentSize: 64 << 20})
	return &tidwallStore{Log: l}, err
}

func (t *tidwallStore) add(number uint64, value []byte) error {
	t.lot.Write(number, value)
	return nil
}

func (t *tidwallStore) commit() error { return t.WriteBatch(&t.lot) }

func (t *tidwallStore) one(number uint64, value []byte) error { return t.Write(number, value) }

func (t *tidwallStore) last() (uint64, error) { return t.LastIndex() }

// boltStore is go.etcd.io/bbolt: one bucket whose pages are filled to the end, since
// keys only grow.
type boltStore struct {
	*bbolt.DB
	tx     *bbolt.Tx // of the lot
	bucket *bbolt.Bucket
}

var boltBucket = []byte(topic)

func openBolt(dir string, sync bool) (store, error) {
	db, err := bbolt.Open(dir, 0o600, &bbolt.Options{
		NoSync: !sync, NoGrowSync: !sync, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, InitialMmapSize: 1 << 30,
	})
	if err != nil {
		return nil, err
	}
	db.AllocSize = 64 << 20
	b := &boltStore{DB: db}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(boltBucket)
		return err
	})
	return b, err
}

func (b *boltStore) add(number uint64, value []byte) error {
	if b.tx == nil {
		tx, err := b.Begin(true)
		if err != nil {
			return err
		}
		b.tx, b.bucket = tx, tx.Bucket(boltBucket)
		b.bucket.FillPercent = 1
	}
	return b.bucket.Put(storeKey(number), value)
}

func (b *boltStore) commit() error {
	if b.tx == nil {
		return nil
	}
	tx := b.tx
	b.tx, b.bucket = nil, nil
	return tx.Commit()
}

func (b *boltStore) one(number uint64, value []byte) error {
	return errors.Join(b.add(number, value), b.commit())
}

func (b *boltStore) last() (number uint64, err error) {
	err = b.View(func(tx *bbolt.Tx) error {
		if key, _ := tx.Bucket(boltBucket).Cursor().Last(); key != nil {
			number = binary.BigEndian.Uint64(key)
		}
		return nil
	})
	return number, err
}

// pebbleStore is github.com/cockroachdb/pebble.
type pebbleStore struct {
	*pebble.DB
	lot  *pebble.Batch
	sync *pebble.WriteOptions
}

type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func openPebble(dir string, sync bool) (store, error) {
	opts := &pebble.Options{
		Logger: silent{}, FormatMajorVersion: pebble.FormatNewest,
		MemTableSize: 64 << 20, MemTableStopWritesThreshold: 4, L0CompactionThreshold: 8, L0StopWritesThreshold: 1000,
	}
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	db, err := pebble.Open(dir, opts)
	if err != nil {
		return nil, err
	}
	p := &pebbleStore{DB: db, lot: db.NewBatch(), sync: pebble.NoSync}
	if sync {
		p.sync = pebble.Sync
	}
	return p, nil
}

func (p *pebbleStore) add(number uint64, value []byte) error {
	op := p.lot.SetDeferred(8, len(value))
	binary.BigEndian.PutUint64(op.Key, number)
	copy(op.Value, value)
	return op.Finish()
}

func (p *pebbleStore) commit() error {
	err := p.lot.Commit(p.sync)
	p.lot.Reset()
	return err
}

func (p *pebbleStore) one(number uint64, value []byte) error {
	return p.Set(storeKey(number), value, p.sync)
}

func (p *pebbleStore) last() (number uint64, err error) {
	it, err := p.NewIter(nil)
	if err != nil {
		return 0, err
	}
	if it.Last() {
		number = binary.BigEndian.Uint64(it.Key())
	}
	return number, it.Close()
}

func (p *pebbleStore) Close() error { return errors.Join(p.lot.Close(), p.DB.Close()) }
