// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// errNoField indicates a term of a field selector that names no field.
var errNoField = errors.New("a term without a field")

// Labels validates a label selector and returns its canonical form:
// requirements sorted and without repetitions, equivalent operators replaced by
// one.
func Labels(s string) (string, error) {
	selector, err := labels.Parse(s)
	if err != nil {
		return "", err
	}
	reqs, _ := selector.Requirements()
	terms := make([]string, 0, len(reqs))
	for _, r := range reqs {
		op, values := r.Operator(), r.ValuesUnsorted()
		switch {
		case op == selection.DoubleEquals, op == selection.In && len(values) == 1:
			op = selection.Equals
		case op == selection.NotIn && len(values) == 1:
			op = selection.NotEquals
		}

		canonical, err := labels.NewRequirement(r.Key(), op, values)
		if err != nil {
			return "", err
		}
		terms = append(terms, canonical.String())
	}

	slices.Sort(terms)

	return strings.Join(slices.Compact(terms), ","), nil
}

// Fields validates a field selector and returns its canonical form: terms
// sorted and without repetitions.
func Fields(s string) (string, error) {
	selector, err := fields.ParseSelector(s)
	if err != nil {
		return "", err
	}
	reqs := slices.Clone(selector.Requirements())
	slices.SortFunc(reqs, func(a, b fields.Requirement) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Operator, b.Operator), cmp.Compare(a.Value, b.Value))
	})
	terms := make([]string, 0, len(reqs))
	for _, r := range slices.Compact(reqs) {
		if r.Field == "" {
			return "", errNoField
		}
		op := "="
		if r.Operator == "!=" {
			op = "!="
		}
		terms = append(terms, r.Field+op+fields.EscapeValue(r.Value))
	}

	return strings.Join(terms, ","), nil
}

// Local reports whether every term of a canonical field selector can be
// evaluated on any object's metadata.
func Local(canonical string) bool {
	selector, err := fields.ParseSelector(canonical)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(selector.Requirements(), func(r fields.Requirement) bool {
		return r.Field != "metadata.name" && r.Field != "metadata.namespace"
	})
}
