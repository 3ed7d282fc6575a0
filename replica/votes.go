package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/bbolt"
)

// votes is a file of raft-boltdb, with its bucket and its encoding, that takes
// many writes with one sync. Elections come in crowds: when a node dies, all the
// groups that it led elect at once, each with some writes on each node. One sync
// for each of them would take longer than the election timeout, and nobody would
// ever be elected.
//
// It owns no goroutine: whoever comes while nobody writes, writes for all who
// came meanwhile.
type votes struct {
	db *bbolt.DB

	mu      sync.Mutex
	next    *voteBatch    // takes what comes; nil while nobody waits
	writing chan struct{} // capacity 1: held by who writes
}

// voteBatch is written in one transaction.
type voteBatch struct {
	keys, values [][]byte
	done         chan struct{} // closed when err is set
	err          error
}

var (
	voteBucket  = []byte("conf")
	errNotFound = errors.New("not found") // the text is what Raft expects
)

func openVotes(path string, options *bbolt.Options) (*votes, error) {
	db, err := bbolt.Open(path, 0o600, options)
	if err != nil {
		return nil, err
	}
	v := &votes{db: db, writing: make(chan struct{}, 1)}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(voteBucket)
		return err
	})
	if err != nil {
		_ = db.Close() // err says more
		return nil, err
	}
	return v, nil
}

// Set implements raft.StableStore. It returns when the value is synced.
func (v *votes) Set(key, value []byte) error {
	v.mu.Lock()
	b := v.next
	if b == nil {
		b = &voteBatch{done: make(chan struct{})}
		v.next = b
	}
	b.keys, b.values = append(b.keys, key), append(b.values, value)
	v.mu.Unlock()
	select {
	case <-b.done:
		return b.err
	case v.writing <- struct{}{}:
	}
	defer func() { <-v.writing }()
	v.mu.Lock()
	if v.next != b { // the one before has written it
		v.mu.Unlock()
		<-b.done
		return b.err
	}
	v.next = nil
	v.mu.Unlock()
	b.err = v.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(voteBucket)
		for i, key := range b.keys {
			if err := bucket.Put(key, b.values[i]); err != nil {
				return err
			}
		}
		return nil
	})
	close(b.done)
	return b.err
}

// Get implements raft.StableStore.
func (v *votes) Get(key []byte) (value []byte, err error) {
	err = v.db.View(func(tx *bbolt.Tx) error {
		found := tx.Bucket(voteBucket).Get(key)
		if found == nil {
			return errNotFound
		}
		value = append([]byte(nil), found...)
		return nil
	})
	return value, err
}

// SetUint64 implements raft.StableStore.
func (v *votes) SetUint64(key []byte, value uint64) error {
	return v.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (v *votes) GetUint64(key []byte) (uint64, error) {
	value, err := v.Get(key)
	if err == nil && len(value) != 8 {
		err = fmt.Errorf("%q holds %d bytes, want a number of 8", key, len(value))
	}
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(value), nil
}
