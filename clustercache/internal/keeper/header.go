// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/packed"
)

// headers is the bucket of the headers, by the id of the informer, and
// dictionaries that of dictionaries. Those of objects begin with objectsPrefix.
const (
	headers       = "headers"
	dictionaries  = "dictionaries"
	objectsPrefix = "objects "
)

// maxSkew is how far the clock may have gone back.
const maxSkew = 5 * time.Minute

var (
	errOld      = errors.New("too old")
	errOldList  = errors.New("its list is too old")
	errClock    = errors.New("from the future: the clock went back")
	errIdentity = errors.New("of another cluster")
	errHistory  = errors.New("of another history")
	errSettings = errors.New("of other settings or transforms")
	errKey      = errors.New("of another selection")
)

// header describes a kept state. It is written in one transaction with the
// objects. A state without a header, or with another set of objects than the
// header's, is not used. Its times are those of this process, except on disk.
type header struct {
	Key     informerpool.Key `json:"key"`
	Kind    string           `json:"kind,omitempty"`
	Cluster string           `json:"cluster"` // its identity
	Version string           `json:"version"`
	Proven  time.Time        `json:"proven"`
	Listed  time.Time        `json:"listed"`
	Defined string           `json:"defined,omitempty"` // the CustomResourceDefinition and its schema

	// Process and Epoch identify the history as that process numbered it.
	Process string             `json:"process"`
	Epoch   informerpool.Epoch `json:"epoch"`

	// Packed is the format of objects, and Dictionaries are those that they refer
	// to, by their number; zero if none refers to it any more.
	Packed       int                   `json:"packed"`
	Dictionaries []packed.DictionaryID `json:"dictionaries,omitempty"`

	DropManagedFields bool   `json:"dropManagedFields,omitempty"`
	Transform         string `json:"transform,omitempty"`

	Objects int    `json:"objects"`
	Digest  string `json:"digest"`
	Bytes   int64  `json:"bytes"` // of the records
}

// bucket returns the bucket of an informer's objects.
func (i id) bucket() string { return objectsPrefix + hex.EncodeToString(i[:]) }

// ours reports whether a bucket has a name as the keeper gives it. Others in
// the store are another program's.
func ours(bucket string) bool {
	if bucket == headers || bucket == dictionaries {
		return true
	}
	digits, objects := strings.CutPrefix(bucket, objectsPrefix)
	of, err := hex.DecodeString(digits)

	return objects && err == nil && len(of) == idSize && id(of).bucket() == bucket
}

// idOf returns the id of an informer's key.
func (c *codec) idOf(k informerpool.Key) id {
	return c.id("informer", k.Cluster.Namespace, k.Cluster.Name, k.Resource.Group, k.Resource.Version,
		k.Resource.Resource, k.Kind, k.Namespace, k.LabelSelector, k.FieldSelector)
}

// objectID returns the key of an object's record.
func (c *codec) objectID(namespace, name string) id { return c.id("object", namespace, name) }

// dictionaryID returns the key of a dictionary's record.
func (c *codec) dictionaryID(d packed.DictionaryID) id { return c.id("dictionary", string(d[:])) }

// digest is the digest of a set of records, in the order of their keys.
type digest struct {
	hash.Hash

	text []byte
}

func newDigest() *digest { return &digest{Hash: sha256.New()} }

func (d *digest) add(key []byte, sum id) {
	d.text = append(append(d.text[:0], key...), sum[:]...)
	d.Write(d.text)
}

func (d *digest) String() string { return hex.EncodeToString(d.Sum(nil)) }

// readHeader returns the header in a record of their bucket.
func (b *bucketCodec) readHeader(of id, record []byte) (*header, error) {
	content, _, err := b.decode(of[:], record)
	if err != nil {
		return nil, err
	}
	h := &header{}
	if err := json.Unmarshal(content, h); err != nil {
		return nil, fmt.Errorf("%w: %w", errFormat, err)
	}
	switch {
	case b.codec.idOf(h.Key) != of:
		return nil, errKey
	case h.Packed != packed.StoredFormat:
		return nil, errFormat
	}
	return h, nil
}

// transform returns the revision of what transforms the objects of a resource,
// "" if nothing does, and whether such objects are kept.
func (k *Keeper) transform(resource schema.GroupResource) (revision string, kept bool) {
	if k.informers.TransformOf(resource) == nil {
		return "", true
	}
	return k.options.TransformRevision, k.options.TransformRevision != ""
}

// check returns why a state may not be used now, whatever its cluster is, or
// nil.
func (k *Keeper) check(h *header, now time.Time) error {
	o := &k.options
	revision, _ := k.transform(h.Key.Resource.GroupResource())
	switch {
	case h.DropManagedFields != k.informers.DropManagedFields, h.Transform != revision:
		return errSettings
	case h.Proven.After(now.Add(maxSkew)), h.Listed.After(now.Add(maxSkew)):
		return errClock
	case o.MaxAge >= 0 && now.Sub(h.Proven) > o.MaxAge:
		return errOld
	case o.MaxListAge >= 0 && now.Sub(h.Listed) > o.MaxListAge:
		return errOldList
	}
	return nil
}
