// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Fields is a set of the metadata fields known to Scan.
type Fields uint32

// The metadata fields known to Scan.
const (
	FieldName Fields = 1 << iota
	FieldGenerateName
	FieldNamespace
	FieldSelfLink
	FieldUID
	FieldResourceVersion
	FieldGeneration
	FieldCreationTimestamp
	FieldDeletionTimestamp
	FieldDeletionGracePeriodSeconds
	FieldLabels
	FieldAnnotations
	FieldOwnerReferences
	FieldFinalizers
	FieldManagedFields
)

// Item is one validated object. Its strings are copies that share one small
// allocation. Its byte slices, and the results of its methods, alias the
// scanned object and become invalid with it.
type Item struct {
	// APIVersion and Kind are empty in the items of typed lists.
	APIVersion, Kind string

	Namespace, Name, UID, ResourceVersion string

	// Generation is 0 if absent.
	Generation int64
	// CreationTimestamp and DeletionTimestamp are unchanged: empty or an RFC
	// 3339 time.
	CreationTimestamp, DeletionTimestamp string

	// Labels, Annotations, OwnerReferences and Finalizers are raw JSON of the
	// right type (see StringMap, Strings); nil if absent or null.
	Labels, Annotations, OwnerReferences, Finalizers []byte

	layout
}

// layout is where the parts of an object are.
type layout struct {
	object      []byte
	hasMetadata bool
	top         memberList // members of the object, except apiVersion, kind and metadata
	meta        memberList // members of metadata
	has         Fields     // fields present in metadata, even if null
}

// HasMetadata reports whether the object has metadata that is not null.
func (it *Item) HasMetadata() bool { return it.hasMetadata }

// AppendMetadata appends the members of metadata except drop, separated by
// commas and without the braces.
func (it *Item) AppendMetadata(dst []byte, drop Fields) []byte {
	return it.appendMembers(dst, &it.meta, drop)
}

// AppendRest appends the members of the object other than apiVersion, kind and
// metadata, separated by commas and without the braces.
func (it *Item) AppendRest(dst []byte) []byte {
	return it.appendMembers(dst, &it.top, 0)
}

// Has returns the metadata fields that the object contains, even if they are
// null.
func (it *Item) Has() Fields { return it.has }

// Annotation returns the value of an annotation, and whether it exists.
func (it *Item) Annotation(name string) (string, bool) {
	return Lookup(it.Annotations, name)
}

func (it *Item) appendMembers(dst []byte, list *memberList, drop Fields) []byte {
	first := true
	for i := range list.n {
		m := list.at(i)
		if m.field&drop != 0 {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, it.object[m.from:m.to]...)
	}

	return dst
}

// memberList records the positions of members, from the first byte of the key
// to the last byte of the value. The usual number of members needs no
// allocation.
type memberList struct {
	n     int
	first [12]fieldSpan
	more  []fieldSpan
}

type fieldSpan struct {
	span
	field Fields
}

func (l *memberList) add(s span, field Fields) {
	f := fieldSpan{s, field}
	if l.n < len(l.first) {
		l.first[l.n] = f
	} else {
		l.more = append(l.more, f)
	}
	l.n++
}

func (l *memberList) at(i int) fieldSpan {
	if i < len(l.first) {
		return l.first[i]
	}
	return l.more[i-len(l.first)]
}
