// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// Object is one cached object: a read-only client.Object whose metadata is
// available without decoding the body. DeepCopyObject returns a mutable
// *unstructured.Unstructured; Into decodes into any form.
type Object = packed.Object

// changed reports whether a stream shows another content of the cached object
// under its version, as servers do that do not count every change.
func changed(old, o *Object) bool {
	return ordering.Repeats(o, old) && !ordering.SameState(old, o)
}

// scanner is a reader positioned at an object.
type scanner interface {
	Object() []byte
	Scan() (wire.Item, error)
}

// isRefusal reports whether an error concerns one object alone, so that the
// others of the response are still processed.
func isRefusal(err error) bool {
	_, field := errors.AsType[*wire.FieldError](err)
	_, limit := errors.AsType[*wire.LimitError](err)
	return field || limit
}
