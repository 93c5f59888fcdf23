// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// AppendJSON appends the whole object, including apiVersion and kind, as JSON.
// If the object's body is damaged, AppendJSON appends nothing.
func (o *Object) AppendJSON(dst []byte) []byte {
	from, err := o.open(toEnd)
	if err != nil {
		return dst
	}
	defer from.close()
	return from.appendJSON(dst)
}

// headerRoom is the approximate JSON size of an object's header.
const headerRoom = 256

func (o opened) appendJSON(dst []byte) []byte {
	dst = slices.Grow(dst, headerRoom+len(o.s.plain))
	dst = append(append(dst, '{'), o.kind.members...)
	dst = o.appendMetadata(append(dst, `,"metadata":{`...))
	dst = append(dst, '}')
	if rest := o.s.rest(); len(rest) > 0 {
		dst = append(append(dst, ','), rest...)
	}

	return append(dst, '}')
}

// appendMetadata appends the members of metadata.
func (o opened) appendMetadata(dst []byte) []byte {
	start := len(dst)
	if name := NameOf(o.Object); name != "" {
		dst = appendQuoted(append(dst, `"name":`...), name)
	}
	if ns := o.GetNamespace(); ns != "" {
		dst = appendQuoted(append(comma(dst, start), `"namespace":`...), ns)
	}
	dst = o.appendIdentity(dst, start)
	if o.generation != 0 {
		dst = append(comma(dst, start), `"generation":`...)
		dst = strconv.AppendUint(dst, uint64(o.generation), 10)
	}
	if o.flags&hasCreated != 0 {
		dst = append(comma(dst, start), `"creationTimestamp":"`...)
		dst = append(o.appendCreated(dst), '"')
	}
	if labels := o.s.labels(); len(labels) > 0 {
		dst = append(append(comma(dst, start), `"labels":`...), labels...)
	}
	if owners := o.s.owners(); len(owners) > 0 {
		dst = append(append(comma(dst, start), `"ownerReferences":`...), owners...)
	}
	if meta := o.s.metadata(); len(meta) > 0 {
		dst = append(comma(dst, start), meta...)
	}

	return dst
}

// appendIdentity appends the UID and the resourceVersion.
func (o opened) appendIdentity(dst []byte, start int) []byte {
	if uid := o.GetUID(); uid != "" {
		dst = appendQuoted(append(comma(dst, start), `"uid":`...), string(uid))
	}
	if version := o.GetResourceVersion(); version != "" {
		dst = appendQuoted(append(comma(dst, start), `"resourceVersion":`...), version)
	}
	return dst
}

// appendCreated appends the creation time as it was received.
func (o opened) appendCreated(dst []byte) []byte {
	return time.Unix(int64(o.created), 0).UTC().AppendFormat(dst, time.RFC3339)
}

// comma appends a separator unless the members, which begin at start, are still
// empty.
func comma(dst []byte, start int) []byte {
	if len(dst) > start {
		return append(dst, ',')
	}
	return dst
}

var _ json.Marshaler = (*Object)(nil)

// MarshalJSON returns the whole object, including apiVersion and kind. It is
// used by encoders, runtime.DefaultUnstructuredConverter and tools that
// evaluate jq or CEL.
func (o *Object) MarshalJSON() ([]byte, error) {
	from, err := o.open(toEnd)
	if err != nil {
		return nil, o.decodeError(o, err)
	}
	defer from.close()
	return from.appendJSON(nil), nil
}
