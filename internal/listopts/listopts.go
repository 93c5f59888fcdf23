// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package listopts says what the selectors of list options mean, so that they
// mean the same to every read, delete and watch.
package listopts

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Nothing returns the name of a selector of list options that selects no
// object, or "". No such options are sent: the text of the selector is empty,
// which an API server takes for everything.
func Nothing(o *client.ListOptions) string {
	switch {
	case LabelsOfNothing(o.LabelSelector):
		return "LabelSelector"
	case fieldsOfNothing(o.FieldSelector):
		return "FieldSelector"
	}
	return ""
}

// LabelsOfNothing reports whether a selector, which may be nil, selects no
// labels.
func LabelsOfNothing(s labels.Selector) bool {
	if s == nil {
		return false
	}
	_, selectable := s.Requirements()
	return !selectable
}

// fieldsOfNothing reports whether a selector, which may be nil, or one of those
// that it consists of, is fields.Nothing: it does not become empty when each
// requirement is left out.
func fieldsOfNothing(s fields.Selector) bool {
	if s == nil {
		return false
	}
	left, err := s.Transform(func(string, string) (string, string, error) { return "", "", nil })
	return err == nil && !left.Empty()
}

// Resolve sets the selectors of list options from their Raw options, where a
// client would send those: it sends the text of Raw unless there is a selector.
// The error names the field.
func Resolve(o *client.ListOptions) (err error) {
	if o.Raw == nil {
		return nil
	}
	if o.LabelSelector == nil && o.Raw.LabelSelector != "" {
		if o.LabelSelector, err = labels.Parse(o.Raw.LabelSelector); err != nil {
			return fmt.Errorf("Raw.LabelSelector: %w", err)
		}
	}
	if o.FieldSelector == nil && o.Raw.FieldSelector != "" {
		if o.FieldSelector, err = fields.ParseSelector(o.Raw.FieldSelector); err != nil {
			return fmt.Errorf("Raw.FieldSelector: %w", err)
		}
	}
	return nil
}
