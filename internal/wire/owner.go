// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

// owner reads one owner reference.
func (s *scanner) owner(i int) int {
	const field = "metadata.ownerReferences"
	if s.at(i) != '{' {
		return s.wrongType(i, field, "holds something other than objects")
	}
	var seen uint8
	var ignored quoted
	return s.each(i, func(key span, from int) int {
		bit := ownerField(key.of(s.b))
		s.twice = s.twice || seen&bit != 0
		seen |= bit
		switch {
		case bit == 0:
			return s.value(from)
		case bit < ownerController:
			return s.text(from, field, &ignored)
		}
		return s.boolean(from, field)
	})
}

const (
	ownerAPIVersion = 1 << iota
	ownerKind
	ownerName
	ownerUID
	ownerController
	ownerBlock
)

func ownerField(key []byte) uint8 {
	if !plain(key) {
		key = requote(key)
	}
	switch string(key) {
	case `"apiVersion"`:
		return ownerAPIVersion
	case `"kind"`:
		return ownerKind
	case `"name"`:
		return ownerName
	case `"uid"`:
		return ownerUID
	case `"controller"`:
		return ownerController
	case `"blockOwnerDeletion"`:
		return ownerBlock
	}

	return 0
}

// boolean reads true, false or null.
func (s *scanner) boolean(i int, field string) int {
	switch s.at(i) {
	case 't', 'f', 'n':
		return s.value(i)
	}
	return s.wrongType(i, field, "holds a flag that is not a boolean")
}
