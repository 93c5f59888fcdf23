// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package persist configures what a ClusterCache keeps on disk, so that the
// next process begins with the caches of this one instead of a list of
// everything in every cluster.
//
// For each informer the objects are kept as they are in memory, with the
// resourceVersion at which the server had exactly those, and with the identity
// of the cluster. They are written in the background. The next process reads
// them once the cluster has proved the same identity, and asks whether its
// history reaches that version. If anything has changed in the cluster since,
// it compares the objects with a list of their metadata, which is smaller than
// one of the objects, and opens a watch from the kept version for those that
// differ. The objects become the cache once they are proven to be those that
// the server has; until then reads find no cache, as before a list. Where a
// proof fails or takes more than 10 s, or the server does not remember the
// version any more (410), the informer lists as ever.
//
// What is damaged, of another format, cluster, kind or transform, or too old is
// dropped, with a line in the log and in the metric
// fleetcache_persist_dropped_total. It is never used in part.
//
// Package clustercache/persist/bolt is a [Store] on go.etcd.io/bbolt.
// docs/persist.md describes when to use it, which volume it needs, and what is
// on disk for whom.
package persist

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Defaults of [Options].
const (
	DefaultInterval       = time.Minute
	DefaultBytesPerSecond = 4 << 20
	DefaultMaxBytes       = 1 << 30
	DefaultMaxAge         = 24 * time.Hour
	DefaultMaxListAge     = 7 * 24 * time.Hour
	DefaultFlushTimeout   = 500 * time.Millisecond
)

// KeyBytes is the length of Options.Key.
const KeyBytes = 32

// ErrLocked indicates that another process uses the store.
var ErrLocked = errors.New("store is in use by another process")

// Options configure what is kept. Without a Store nothing is.
type Options struct {
	// Store keeps the records. It belongs to one ClusterCache, and must be
	// closed after Start has returned. Optional.
	Store Store
	// Interval is the time between two rounds in which the state of each
	// informer that has changed is written. After a process was killed, the
	// watches of the next one begin at the last round. Defaults to 1 min; less
	// than a second is refused.
	Interval time.Duration
	// BytesPerSecond bounds how much is written, on average over a round.
	// Defaults to 4 MiB; negative means no limit.
	BytesPerSecond int64
	// MaxBytes bounds the records that are kept, which are about as large as the
	// objects in memory. A Store may take twice as much for them. The states of
	// further informers are not kept. Defaults to 1 GiB; negative means no limit.
	MaxBytes int64
	// MaxAge is how long after its server was last heard of a state may be
	// used, by the clock of the machine. What is older is deleted, which is
	// also what becomes of clusters that are gone. Defaults to 24 h; negative
	// means no limit.
	MaxAge time.Duration
	// MaxListAge is how long after the last complete list of its informer a
	// state may be used. Only a list shows content that changed under one
	// resourceVersion, for example through a new default of an API server. That
	// of a CustomResourceDefinition is found earlier, where those may be listed.
	// Defaults to 7 days; negative means no limit.
	MaxListAge time.Duration
	// FlushTimeout bounds the last round, when Start ends, which is delayed by
	// as much. What the round does not come to remains as it was in the one
	// before, except for a state of which more than a MiB changes and whose
	// last part is not written in time: nothing is left of it. A store that
	// hangs is waited for a second longer. Defaults to 500 ms; negative means
	// no last round.
	FlushTimeout time.Duration
	// Secrets includes Secrets (of the core group). Defaults to leaving them
	// out. Without a Key they are stored as readable as the Store's file is.
	Secrets bool
	// Only are the kinds that are kept. Secrets among them need the field
	// Secrets as well. Defaults to all kinds.
	Only []schema.GroupKind
	// Except are kinds that are not kept, such as other kinds that have secrets
	// in them. What an earlier process has kept of them is deleted. Optional.
	Except []schema.GroupKind
	// TransformRevision names the behavior of Informers.Transforms. Objects are
	// kept as they were transformed, so it must change whenever a transform
	// does, or what the transform depends on: states of another revision are
	// not used. Defaults to none, which leaves out all resources that have a
	// transform.
	TransformRevision string
	// Key encrypts and authenticates all records, with AES-256-GCM, if it has
	// 32 bytes. Names of objects are then not readable either. Records of
	// another key are dropped. Optional.
	Key []byte
}

// Change is one change of a Store.
type Change struct {
	// Bucket is the bucket of the record.
	Bucket string
	// Key is the key of the record, at most 16 bytes; nil deletes the whole
	// bucket, which may not exist.
	Key []byte
	// Value replaces the value of the key, whose bucket is created where
	// necessary; nil deletes the record, which may not exist.
	Value []byte
}

// Store is an embedded key-value store. Its methods may be called from many
// goroutines; an error leaves it as it was. No read sees a part of an Apply,
// whatever happens to the process. A Store may be opened while another process
// uses it: its methods return ErrLocked then, and nothing is kept until they do
// not. Buckets that are not the ClusterCache's are left as they are.
type Store interface {
	// Buckets returns the names of all buckets, sorted.
	Buckets() ([]string, error)
	// Read calls f for each record of a bucket, in the order of keys, all as of
	// one moment, until f fails, and returns that error. The slices are valid
	// during the call. There are none in a bucket that does not exist. f must
	// not call the Store.
	Read(bucket string, f func(key, value []byte) error) error
	// Apply makes all changes, or none, and returns when they are durable. The
	// slices are valid during the call.
	Apply(changes []Change) error
}
