// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
	"github.com/fleetcache/fleetcache/internal/restmap"
)

// follow makes a call with a client that is up to date with discovery. A call
// that fails as if its kind were not served, or were served elsewhere, is
// repeated once if discovery has changed.
func (f *Factory) follow(ctx context.Context, call calling) error {
	known := f.config.Mapper.Changes()
	err := f.discovered(ctx, call)
	if err == nil || !elsewhere(err) || !f.askAgain(ctx, known) {
		return err
	}
	return f.discovered(ctx, call)
}

// discovered makes a call, once the kinds that it is about are known. The
// discovery is this call's own, which it waits for no longer than ctx lasts,
// and no other call waits for it. What is presumed is for this call alone.
func (f *Factory) discovered(ctx context.Context, call calling) error {
	inner, err := f.current()
	if err != nil {
		return err
	}
	err = call(ctx, inner)
	given := map[schema.GroupVersionKind]restmap.Mapping{}
	for {
		unknown, ok := errors.AsType[*restmap.NotCachedError](err)
		if !ok {
			return err
		}
		mapping, failed := f.config.Mapper.ResourceFor(ctx, unknown.GVK)
		if failed != nil {
			return failed
		}
		given[unknown.GVK] = mapping
		if inner, err = f.with(given); err != nil {
			return err
		}
		err = call(ctx, inner)
	}
}

// elsewhere reports whether a server may have refused a path and not an object:
// then nothing was done. A missing object is distinguished from a missing
// resource by the API status, which a server writes for the object alone. A
// kind that discovery lacked a moment ago may be served by now: watches of the
// kind recover by themselves, and writes must not lag behind them. A request
// that was not sent for lack of a namespace may be about a kind that has become
// cluster-scoped, and a list of all namespaces is the answer to one of a kind
// that was.
func elsewhere(err error) bool {
	if errors.Is(err, errScope) {
		return true
	}
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return meta.IsNoMatchError(err) || strings.HasPrefix(err.Error(), noNamespace)
	}
	return apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) && apistatus.OfGateway(err)
}

// errScope indicates that a list of a namespace was sent as one of a kind that has
// none by discovery, and has by the answer, which is that of all namespaces.
var errScope = errors.New("the kind has become namespaced, and discovery does not say so yet")

// ofNamespace returns errScope if a list of one namespace was answered with that
// of all.
func (f *Factory) ofNamespace(list client.ObjectList, gvk schema.GroupVersionKind) error {
	if mapping, known := f.config.Mapper.Cached(gvk); !known || mapping.Namespaced {
		return nil
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		if o, err := meta.Accessor(item); err == nil && o.GetNamespace() != "" {
			return errScope
		}
		return nil
	})
}

// noNamespace begins client-go's refusals to send a request without a namespace
// for a kind that has namespaces by discovery. They have no type.
const noNamespace = "an empty namespace may not be set"
