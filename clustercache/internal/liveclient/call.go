// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// callState is one call of a client: the type that its answer is decoded into,
// and the memory that it may take. Only the caller's goroutine uses it.
type callState struct {
	budget *budget
	scheme *runtime.Scheme

	want  schema.GroupVersionKind // of the object or the items; empty: any
	also  []string                // kinds that may answer instead
	whose *whose                  // whose object it must be; nil: any
	into  reflect.Type            // nil: nothing is decoded
	write bool                    // the kind has to be named
	// creates means that the server may answer with the object that it created
	// from the one that was sent.
	creates bool
	// deletes means that the answer is not decoded, however large it is.
	deletes bool
	list    *items // nil: one object is expected
	item    int    // the largest object of a list in JSON, if larger than usual

	name string // of the object that is asked for; empty: unknown, or whose
	raw  []byte // what client-go decodes, to find what does not fit; nil if it is longer than maxRaw

	answered   bool
	unanswered bool     // a try may have been executed, or may be later
	failed     error    // why the answer was refused
	identity   identity // of an answer that is not decoded
}

// callKey is the context key of a request's call.
type callKey struct{}

func callOf(ctx context.Context) *callState {
	call, _ := ctx.Value(callKey{}).(*callState)
	return call
}

// expect records the type that an answer is decoded into, and its kind if
// known.
func (c *callState) expect(obj any) *callState {
	if absent(obj) {
		return c
	}
	c.into = reflect.TypeOf(obj)
	if _, ok := obj.(runtime.Unstructured); ok {
		c.into = reflect.TypeFor[map[string]any]()
	}
	c.want = kindSent(obj, c.scheme) // without it the call fails by itself
	return c
}

// kindSent returns the kind of a call's argument, an object or an apply
// configuration; empty if it is not known.
func kindSent(obj any, scheme *runtime.Scheme) (gvk schema.GroupVersionKind) {
	if absent(obj) {
		return gvk
	}
	switch o := obj.(type) {
	case runtime.Object:
		gvk, _ = apiutil.GVKForObject(o, scheme)
	case applied:
		gvk = schema.FromAPIVersionAndKind(ptr.Deref(o.GetAPIVersion(), ""), ptr.Deref(o.GetKind(), ""))
	}

	return gvk
}

// absent reports whether there is nothing to decode into.
func absent(obj any) bool {
	v := reflect.ValueOf(obj)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// expectList is expect for a list: its kind is that of the items.
func (c *callState) expectList(list client.ObjectList) *callState {
	if absent(list) {
		return c
	}
	c.expect(list)
	kind, ok := strings.CutSuffix(c.want.Kind, listSuffix)
	_, typed := c.scheme.New(c.want)
	if c.want.Kind = kind; kind == "" || !ok && typed == nil {
		c.want = schema.GroupVersionKind{}
	}
	c.list = newItems(list)

	return c
}

// fail keeps an error, since client-go quotes and wraps the errors that it
// gets.
func (c *callState) fail(err error) error {
	c.failed = err
	return err
}

// check returns an ErrKind if a document has another kind. The answer to a read
// that does not name its kind is decoded as the requested one, as client-go
// does. The answer to a write has to name it: it is decoded into the object
// that was sent, which would hide anything that is missing.
func (c *callState) check(apiVersion, kind string) error {
	if c.write && kind == "" {
		return errNoObject
	}
	if c.want.Empty() {
		return nil
	}
	if kind == "" || kind == c.want.Kind && isVersion(apiVersion, c.want) || c.isMetadata(apiVersion, kind) {
		return nil
	}
	if slices.Contains(c.also, kind) && (kind != kindStatus || isStatus(apiVersion, kind)) ||
		c.creates && c.isMadeOf(apiVersion) {
		return nil
	}
	return otherKind(apiVersion, kind, c.want)
}

// otherKind returns the error of an answer that has another kind.
func otherKind(apiVersion, kind string, want schema.GroupVersionKind) error {
	return fmt.Errorf("%w: %s of %s instead of %s of %s", informerpool.ErrKind, wire.Excerpt(kind),
		wire.Excerpt(apiVersion), wire.Excerpt(want.Kind), wire.Excerpt(want.GroupVersion().String()))
}

func isVersion(apiVersion string, gvk schema.GroupVersionKind) bool {
	return apiVersion == "" || apiVersion == gvk.GroupVersion().String()
}

// isMetadata reports whether a document is metadata only, and was requested as
// such.
func (c *callState) isMetadata(apiVersion, kind string) bool {
	asked := c.deletes || c.into == reflect.TypeFor[*metav1.PartialObjectMetadata]() || c.list != nil && c.list.metadata
	return asked && kind == "PartialObjectMetadata" && strings.HasPrefix(apiVersion, metav1.GroupName+"/")
}
