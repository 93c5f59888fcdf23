// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"
	"unique"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// Pack packs a scanned object. It copies everything it keeps, so the scanned
// bytes may be reused. If the item has a different kind or no metadata, Pack
// returns a [*wire.FieldError].
func (c *Codec) Pack(k *Kind, it wire.Item) (*Object, error) {
	o, err := c.pack(k, it)
	if err == nil {
		k.dict.learn(o)
	}
	return o, err
}

func (c *Codec) pack(k *Kind, it wire.Item) (*Object, error) {
	o, err := c.split(k, &it)
	if err != nil {
		return nil, err
	}
	defer o.close()
	o.body = o.s.seal(k.dict.newest.Load())

	return o.Object, nil
}

// Unstructured returns a scanned object as a packed one is read, for a transform.
// Nothing of it is kept: what a transform removes must not get into the
// dictionary of the kind, which outlives it and may be written to disk.
func (c *Codec) Unstructured(k *Kind, it wire.Item) (*unstructured.Unstructured, error) {
	o, err := c.split(k, &it)
	if err != nil {
		return nil, err
	}
	defer o.close()
	return &unstructured.Unstructured{Object: o.content()}, nil
}

// split returns the header of a scanned object, and the parts of its body.
func (c *Codec) split(k *Kind, it *wire.Item) (opened, error) {
	if err := k.check(it); err != nil {
		return opened{}, err
	}
	o := newObject(k, it.Name)
	drop := o.takeHeader(it)
	if c.DropManagedFields {
		drop |= wire.FieldManagedFields
		o.flags &^= hasManagedFields
	}
	s := newScratch()
	s.plain = append(append(s.plain[:0], it.Labels...), it.OwnerReferences...)
	s.labelsLen, s.ownersLen = len(it.Labels), len(it.OwnerReferences)
	s.plain = it.AppendMetadata(s.plain, drop)
	s.metaLen = len(s.plain) - s.texts()
	s.plain = it.AppendRest(s.plain)

	return opened{o.Object, s}, nil
}

// PackUnstructured packs u as if its JSON had been scanned. It neither retains
// nor changes u. Content that cannot be JSON, such as NaN or a channel, is an
// error.
func (c *Codec) PackUnstructured(k *Kind, u *unstructured.Unstructured) (*Object, error) {
	it, err := scanned(u)
	if err != nil {
		return nil, err
	}
	return c.Pack(k, it)
}

// PackApart is PackUnstructured for an object that is not one of the cache, and
// may lack a transform: it gets into no dictionary.
func (c *Codec) PackApart(k *Kind, u *unstructured.Unstructured) (*Object, error) {
	it, err := scanned(u)
	if err != nil {
		return nil, err
	}
	return c.pack(k, it)
}

// scanned returns the scanned JSON of an object.
func scanned(u *unstructured.Unstructured) (wire.Item, error) {
	b, err := u.MarshalJSON()
	if err != nil {
		return wire.Item{}, err
	}
	return wire.Scan(b)
}

// draft is an object that is being packed, before it is handed out.
type draft struct{ *Object }

// more returns the rare part, to be written to.
func (o draft) more() *rare {
	if o.rare == nil {
		o.rare = new(rare)
	}
	return o.rare
}

// takeHeader fills in the header. It returns the metadata fields that the
// header represents exactly, so that the body can omit them.
func (o draft) takeHeader(it *wire.Item) wire.Fields {
	var drop wire.Fields
	o.namespace = unique.Make(it.Namespace)
	if it.Namespace != "" {
		drop |= wire.FieldNamespace
	}
	if it.Name != "" {
		drop |= wire.FieldName
	}
	drop |= o.takeUID(it.UID) | o.takeVersion(it.ResourceVersion) | o.takeTimes(it)
	if g := it.Generation; g > 0 && g <= 1<<32-1 {
		o.generation = uint32(g)
		drop |= wire.FieldGeneration
	} else if g != 0 {
		o.more().generation = g
	}

	if it.Labels != nil {
		o.flags |= hasLabels
		drop |= wire.FieldLabels
		t := text{view(it.Labels)}
		o.labels = t.digest()
	}
	if it.OwnerReferences != nil {
		o.flags |= hasOwners
		drop |= wire.FieldOwnerReferences
	}
	if it.Annotations != nil {
		o.flags |= hasAnnotations
	}
	if it.Finalizers != nil {
		o.flags |= hasFinalizers
	}
	if it.Has()&wire.FieldManagedFields != 0 {
		o.flags |= hasManagedFields
	}
	if it.Has()&wire.FieldDeletionGracePeriodSeconds != 0 {
		o.flags |= hasGracePeriod
	}

	return drop
}

// uidLen is the length of a UUID in its canonical form.
const uidLen = 36

// takeUID stores a canonical UUID as 16 bytes and any other UID as a string.
func (o draft) takeUID(uid string) wire.Fields {
	if uid == "" {
		return 0
	}
	if b, ok := parseUID(uid); ok {
		o.uid = b
		o.flags |= hasUID
	} else {
		o.more().uid = strings.Clone(uid)
	}

	return wire.FieldUID
}

// parseUID parses a UUID if appendUID reproduces it exactly.
func parseUID(uid string) (b [16]byte, ok bool) {
	id, err := uuid.Parse(uid)
	var buf [uidLen]byte
	return id, err == nil && string(appendUID(buf[:0], id)) == uid
}

func appendUID(dst []byte, b [16]byte) []byte {
	for i, from := range [...]int{0, 4, 6, 8, 10} {
		if i > 0 {
			dst = append(dst, '-')
		}
		to := [...]int{4, 6, 8, 10, 16}[i]
		dst = hex.AppendEncode(dst, b[from:to])
	}

	return dst
}

// takeVersion stores a decimal resourceVersion as a number.
func (o draft) takeVersion(rv string) wire.Fields {
	if rv == "" {
		return 0
	}
	n, err := strconv.ParseUint(rv, 10, 64)
	var buf [20]byte
	if err == nil && string(strconv.AppendUint(buf[:0], n, 10)) == rv {
		o.version = n
		o.flags |= hasVersion
	} else {
		o.more().version = strings.Clone(rv)
	}

	return wire.FieldResourceVersion
}

// takeTimes stores the timestamps. Those in the API server's format, in whole
// seconds of UTC, can be reproduced from the header.
func (o draft) takeTimes(it *wire.Item) wire.Fields {
	var drop wire.Fields
	if it.CreationTimestamp != "" {
		t, canonical := parseTime(it.CreationTimestamp)
		if seconds := t.Unix(); canonical && seconds >= 0 && seconds <= math.MaxUint32 {
			o.created = uint32(seconds)
			o.flags |= hasCreated
			drop = wire.FieldCreationTimestamp
		} else {
			o.more().created = metav1.Time{Time: t.Local()}
		}
	}

	if it.DeletionTimestamp != "" {
		t, _ := parseTime(it.DeletionTimestamp)
		o.more().deleted = metav1.Time{Time: t.Local()}
	}
	return drop
}

// parseTime parses an RFC 3339 time, which Scan has validated. canonical
// reports whether the header can reproduce the string.
func parseTime(s string) (t time.Time, canonical bool) {
	t, _ = time.Parse(time.RFC3339, s)
	var buf [len(time.RFC3339)]byte
	return t, string(t.UTC().AppendFormat(buf[:0], time.RFC3339)) == s
}
