// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Label returns the value of a label, and whether the object has it, without
// building a map.
func (o *Object) Label(key string) (value string, ok bool) {
	l := labelOf{key: key}
	ok = o.MatchesLabels(&l)
	return l.value, ok
}

// labelOf is a selector that selects the objects with a label, and keeps its
// value. MatchesLabels calls no method but Matches.
type labelOf struct {
	labels.Selector

	key, value string
}

// Matches implements labels.Selector.
func (l *labelOf) Matches(of labels.Labels) bool {
	value, ok := of.Lookup(l.key)
	l.value = strings.Clone(value) // it must not keep all labels in memory
	return ok
}
