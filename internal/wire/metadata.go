// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strconv"
	"time"
)

// metadata scans the value of the top-level key of that name.
func (s *scanner) metadata(i int) int {
	if s.at(i) != '{' {
		return s.nullOr(i, "metadata", "is not an object")
	}
	s.it.hasMetadata = true
	return s.each(i, func(key span, from int) int {
		field, end := s.field(key.of(s.b), from)
		s.twice = s.twice || s.it.has&field != 0
		s.it.has |= field
		if end >= 0 {
			s.it.meta.add(spanOf(int(key.from), end), field)
		}
		return end
	})
}

// field reads the value of one member of metadata, and returns which field that
// is, or 0 if it is unknown.
func (s *scanner) field(key []byte, i int) (Fields, int) {
	var ignored quoted
	switch string(plainKey(key)) {
	case `"name"`:
		return FieldName, s.text(i, "metadata.name", &s.texts.name)
	case `"generateName"`:
		return FieldGenerateName, s.text(i, "metadata.generateName", &ignored)
	case `"namespace"`:
		return FieldNamespace, s.text(i, "metadata.namespace", &s.texts.namespace)
	case `"selfLink"`:
		return FieldSelfLink, s.text(i, "metadata.selfLink", &ignored)
	case `"uid"`:
		return FieldUID, s.text(i, "metadata.uid", &s.texts.uid)
	case `"resourceVersion"`:
		return FieldResourceVersion, s.text(i, "metadata.resourceVersion", &s.texts.version)
	case `"generation"`:
		return FieldGeneration, s.integer(i, "metadata.generation", &s.it.Generation)
	case `"creationTimestamp"`:
		return FieldCreationTimestamp, s.time(i, "metadata.creationTimestamp", &s.texts.created)
	case `"deletionTimestamp"`:
		return FieldDeletionTimestamp, s.time(i, "metadata.deletionTimestamp", &s.texts.deleted)
	case `"deletionGracePeriodSeconds"`:
		var seconds int64 // ignored
		return FieldDeletionGracePeriodSeconds, s.integer(i, "metadata.deletionGracePeriodSeconds", &seconds)
	case `"labels"`:
		return FieldLabels, s.stringMap(i, "metadata.labels", &s.labels)
	case `"annotations"`:
		return FieldAnnotations, s.stringMap(i, "metadata.annotations", &s.annotations)
	case `"ownerReferences"`:
		return FieldOwnerReferences, s.array(i, "metadata.ownerReferences", &s.owners)
	case `"finalizers"`:
		return FieldFinalizers, s.array(i, "metadata.finalizers", &s.finalizers)
	case `"managedFields"`:
		return FieldManagedFields, s.value(i)
	}

	return 0, s.value(i)
}

// integer reads an int64 or null. It refuses a float, even one without a
// fraction, because accessors read it as 0.
func (s *scanner) integer(i int, field string, into *int64) int {
	*into = 0
	if s.at(i) == 'n' {
		return s.literal(i, "null")
	}
	end := s.value(i)
	if end < 0 {
		return -1
	}
	n, err := strconv.ParseInt(string(s.b[i:end]), 10, 64)
	if err != nil {
		return s.refuse(field, "is not an integer")
	}
	*into = n

	return end
}

// time reads an RFC 3339 time or null.
func (s *scanner) time(i int, field string, into *quoted) int {
	end := s.text(i, field, into)
	if end < 0 || into.to == 0 {
		return end
	}
	literal := into.of(s.b)
	var t time.Time
	if t.UnmarshalText(literal[1:len(literal)-1]) == nil { // without a copy, unless there are escapes
		return end
	}
	if _, err := time.Parse(time.RFC3339, unquote(literal)); err != nil {
		return s.refuse(field, "is not an RFC 3339 time")
	}
	return end
}

// stringMap reads an object of strings and nulls, or null.
func (s *scanner) stringMap(i int, field string, into *span) int {
	*into = span{}
	if s.at(i) != '{' {
		return s.nullOr(i, field, "is not an object")
	}
	var ignored quoted
	end := s.each(i, func(_ span, from int) int { return s.text(from, field, &ignored) })
	if end >= 0 {
		*into = spanOf(i, end)
	}
	return end
}

// array reads the array of owner references or of finalizers, or null.
func (s *scanner) array(i int, field string, into *span) int {
	*into = span{}
	if s.at(i) != '[' {
		return s.nullOr(i, field, "is not an array")
	}
	end := s.eachElement(i, func(i int) int {
		if into == &s.owners {
			return s.owner(i)
		}
		return s.finalizer(i)
	})
	if end >= 0 {
		*into = spanOf(i, end)
	}
	return end
}

func (s *scanner) finalizer(i int) int {
	if s.at(i) != '"' {
		return s.wrongType(i, "metadata.finalizers", "holds something other than strings")
	}
	return s.str(i)
}
