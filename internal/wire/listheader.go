// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

// ListHeader describes a list apart from its items.
type ListHeader struct {
	// APIVersion and Kind of the list, such as "v1" and "PodList".
	APIVersion, Kind string
	// ResourceVersion of the list.
	ResourceVersion string
	// Continue is the token for the next page; "" means there is none.
	Continue string
	// Remaining is how many items follow this page, or 0 if the server did not
	// report it.
	Remaining int64
}

// readMember reads the value of a key other than the items' array.
func (l *ListReader) readMember(key string) error {
	raw, err := l.value(false)
	if err != nil {
		return err
	}
	s := scanner{parser: parser{b: raw}}
	var end int
	switch key {
	case "apiVersion":
		end = s.header(key, &l.header.APIVersion)
	case "kind":
		end = s.header(key, &l.header.Kind)
	case "metadata":
		l.header.ResourceVersion, l.header.Continue, l.header.Remaining = "", "", 0
		end = s.listMeta(&l.header)
	case "items":
		var null quoted
		if end = s.text(0, key, &null); end > 0 && null.to > 0 {
			end = s.refuse(key, "is not an array")
		}
		if l.items {
			end = s.refuse(key, "appears twice")
		}
		l.items = true
	default:
		end = s.value(0)
	}

	if end >= 0 && end != len(raw) {
		s.fail(end, "more after a value")
	}
	if s.err == nil && l.keep && key != "apiVersion" && key != "kind" && key != "items" {
		return l.keepMember(key, raw)
	}
	return l.w.locate(s.err, len(raw))
}

// header reads a string or null that belongs to the list.
func (s *scanner) header(field string, into *string) int {
	var q quoted
	end := s.text(0, field, &q)
	*into = String(q.of(s.b))
	return end
}

// listMeta reads the metadata of a list.
func (s *scanner) listMeta(into *ListHeader) int {
	if s.at(0) != '{' {
		return s.nullOr(0, "metadata", "is not an object")
	}
	return s.each(0, func(key span, from int) (end int) {
		var q quoted
		switch unquote(key.of(s.b)) {
		case "resourceVersion":
			end = s.text(from, "metadata.resourceVersion", &q)
			into.ResourceVersion = String(q.of(s.b))
		case "continue":
			end = s.text(from, "metadata.continue", &q)
			into.Continue = String(q.of(s.b))
		case "remainingItemCount":
			end = s.integer(from, "metadata.remainingItemCount", &into.Remaining)
		default:
			end = s.value(from)
		}
		return end
	})
}
