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
	return s.each(i, func(key span, from int) (end int) {
		bit := uint8(0)
		switch string(plainKey(key.of(s.b))) {
		case `"apiVersion"`:
			bit, end = ownerAPIVersion, s.text(from, field, &ignored)
		case `"kind"`:
			bit, end = ownerKind, s.text(from, field, &ignored)
		case `"name"`:
			bit, end = ownerName, s.text(from, field, &ignored)
		case `"uid"`:
			bit, end = ownerUID, s.text(from, field, &ignored)
		case `"controller"`:
			bit, end = ownerController, s.boolean(from, field)
		case `"blockOwnerDeletion"`:
			bit, end = ownerBlock, s.boolean(from, field)
		default:
			end = s.value(from)
		}
		s.twice = s.twice || seen&bit != 0
		seen |= bit
		return end
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

// boolean reads true, false or null.
func (s *scanner) boolean(i int, field string) int {
	switch s.at(i) {
	case 't', 'f', 'n':
		return s.value(i)
	}
	return s.wrongType(i, field, "holds a flag that is not a boolean")
}
