// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"net/http"
)

// Probe is like ProbeAside, but waits for a connection as other requests do.
func (t *Transport) Probe(ctx context.Context, path string) (Proof, error) {
	return t.ask(ctx, path, nil, t.inUse((*generation).enterGet))
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
