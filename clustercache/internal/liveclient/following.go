// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
)

// follow makes a call with a client that is up to date with discovery. A call
// that fails as if its kind were not served, or were served elsewhere, is
// repeated once if discovery has changed.
func (f *Factory) follow(ctx context.Context, call func(context.Context, client.Client) error) error {
	known := f.config.Mapper.Changes()
	inner, err := f.current()
	if err != nil {
		return err
	}
	err = call(ctx, inner)
	if err == nil || !elsewhere(err) || !f.askAgain(ctx, known) {
		return err
	}
	if inner, again := f.current(); again == nil {
		return call(ctx, inner)
	}
	return err
}

// elsewhere reports whether a server may have refused a path and not an object:
// then nothing was done. A missing object is distinguished from a missing
// resource by the API status, which a server writes for the object alone. A
// kind that discovery lacked a moment ago may be served by now: watches of the
// kind recover by themselves, and writes must not lag behind them.
func elsewhere(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsNotFound(err) && apistatus.OfGateway(err)
}
