// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pooltest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Defined is a Server of widgets that a CustomResourceDefinition defines.
// Discovery has them for as long as the definition exists.
type Defined struct {
	*Server

	uid        atomic.Value // of the definition; empty without one
	generation atomic.Int64 // of the definition, less one
	forbidden  atomic.Bool
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

// Redefine changes the definition.
func (d *Defined) Redefine() { d.generation.Add(1) }

// Forbid refuses lists of definitions.
func (d *Defined) Forbid(forbid bool) { d.forbidden.Store(forbid) }

// Discover implements informerpool.Discoverer.
func (d *Defined) Discover(context.Context, informerpool.Request) (informerpool.Discovery, error) {
	return informerpool.Discovery{Served: d.uid.Load() != ""}, nil
}

// List implements informerpool.Source.
func (d *Defined) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Key.Resource.Resource == "customresourcedefinitions" {
		if d.forbidden.Load() {
			return nil, apierrors.NewForbidden(r.Key.Resource.GroupResource(), "", nil)
		}
		return definitions(d.uid.Load().(string), d.generation.Load()+1), nil
	}
	return d.Server.List(ctx, r)
}

// Definitions returns the list of the widgets' definition, which has the uid,
// or does not exist if that is empty.
func Definitions(uid string) io.ReadCloser { return definitions(uid, 1) }

func definitions(uid string, generation int64) io.ReadCloser {
	items := ""
	if uid != "" {
		items = fmt.Sprintf(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{`+
			`"name":"widgets.example.com","uid":%q,"resourceVersion":"7","generation":%d}}`, uid, generation)
	}
	return io.NopCloser(strings.NewReader(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",` +
		`"metadata":{"resourceVersion":"9"},"items":[` + items + `]}`))
}
