// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SelectsNothing reports whether a selector of list options selects no object.
// No such options are sent: the text of the selector is empty, which an API
// server takes for everything.
func SelectsNothing(o *client.ListOptions) bool {
	if o.LabelSelector != nil {
		if _, selectable := o.LabelSelector.Requirements(); !selectable {
			return true
		}
	}
	return o.FieldSelector != nil && matchesNothing(o.FieldSelector)
}

// matchesNothing reports whether a selector, or one of those that it consists
// of, is fields.Nothing: it does not match the example that its own
// requirements describe. Several requirements on one field are left to the
// server, since an indexed field may have several values.
func matchesNothing(s fields.Selector) bool {
	if s.Empty() {
		return false
	}
	example := fields.Set{}
	for _, r := range s.Requirements() {
		if _, twice := example[r.Field]; twice {
			return false
		}
		example[r.Field] = r.Value
		if r.Operator == selection.NotEquals {
			example[r.Field] += "other"
		}
	}
	return !s.Matches(example)
}

// empty makes a list the answer to options that select nothing.
func empty(list client.ObjectList) error {
	list.SetResourceVersion("")
	list.SetContinue("")
	list.SetRemainingItemCount(nil)
	return meta.SetList(list, nil)
}
