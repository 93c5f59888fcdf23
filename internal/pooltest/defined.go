// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pooltest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Defined is a Server of widgets that a CustomResourceDefinition defines.
// Discovery has them for as long as the definition exists.
type Defined struct {
	*Server

	uid atomic.Value // of the definition; empty without one
}

// NewDefined returns a server whose definition exists.
func NewDefined(s *Server) *Defined {
	d := &Defined{Server: s}
	d.Define("one")
	return d
}

// Define replaces the definition by one with another uid, or removes it if that
// is empty.
func (d *Defined) Define(uid string) { d.uid.Store(uid) }

// Discover implements informerpool.Discoverer.
func (d *Defined) Discover(context.Context, informerpool.Request) (informerpool.Discovery, error) {
	return informerpool.Discovery{Served: d.uid.Load() != ""}, nil
}

// List implements informerpool.Source.
func (d *Defined) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Key.Resource.Resource == "customresourcedefinitions" {
		return Definitions(d.uid.Load().(string)), nil
	}
	return d.Server.List(ctx, r)
}

// Definitions returns the list of the widgets' definition, which has the uid,
// or does not exist if that is empty.
func Definitions(uid string) io.ReadCloser {
	items := ""
	if uid != "" {
		items = fmt.Sprintf(`{"metadata":{"name":"widgets.example.com","uid":%q,"resourceVersion":"7"}}`, uid)
	}
	return io.NopCloser(strings.NewReader(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",` +
		`"metadata":{"resourceVersion":"9"},"items":[` + items + `]}`))
}
