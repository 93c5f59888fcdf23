// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// ErrTarget indicates that an object cannot be decoded into the value given.
	ErrTarget = errors.New("not a target for decoding")
	// ErrCorrupt indicates that a body cannot be read back: memory was damaged
	// or the package is wrong.
	ErrCorrupt = errors.New("packed object is corrupt")
)

// DecodeError indicates that an object does not fit the Go value it was to be
// decoded into. It names the object, never its content.
type DecodeError struct {
	// GVK, Namespace and Name say which object.
	GVK             schema.GroupVersionKind
	Namespace, Name string
	// Target is the Go type.
	Target string
	// Err is the cause: ErrTarget, ErrCorrupt or the JSON decoder's type error.
	Err error
}

// Error implements error.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode %s %s/%s into %s: %v", e.GVK.Kind, e.Namespace, e.Name, e.Target, e.Err)
}

// Unwrap returns Err.
func (e *DecodeError) Unwrap() error { return e.Err }

// readOnly is the panic of every setter.
const readOnly = "informerpool: objects handed to handlers are shared and read-only; DeepCopyObject gives a mutable copy"
