// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package traits tells what all objects of a selector have in common, by which
// thousands of selections are found without a look at each.
//
// # Tests
//
// The leading test is TestTraitsOfSelectors.
package traits

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Name returns the one name that a field selector selects, if it selects by
// nothing else.
func Name(fieldSelector string) string {
	selector, err := fields.ParseSelector(fieldSelector)
	if err != nil || len(selector.Requirements()) != 1 {
		return ""
	}
	name, _ := selector.RequiresExactMatch("metadata.name")
	return name
}

// Label returns a label that all objects of a label selector have, if there is
// one; the key is empty otherwise, and for a selector that is not valid.
func Label(labelSelector string) (key, value string) {
	if labelSelector == "" {
		return "", ""
	}
	selector, err := labels.Parse(labelSelector)
	if err != nil {
		return "", ""
	}
	terms, _ := selector.Requirements()
	for _, term := range terms {
		switch values := term.ValuesUnsorted(); term.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if len(values) == 1 {
				return term.Key(), values[0]
			}
		}
	}
	return "", ""
}
