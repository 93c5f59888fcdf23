// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pooltest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Scripted is a source whose lists and streams begin with given bytes. A stream
// stays open after them.
type Scripted struct {
	Listed, Streamed func() string
}

// Ready implements informerpool.Source.
func (s *Scripted) Ready(context.Context, types.NamespacedName) (informerpool.Epoch, error) {
	return "", nil
}

// List implements informerpool.Source.
func (s *Scripted) List(context.Context, informerpool.Request) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(s.Listed())), nil
}

// Watch implements informerpool.Source.
func (s *Scripted) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Options.SendInitialEvents == nil {
		return &Stream{Ctx: ctx}, nil
	}
	return &Stream{Ctx: ctx, Rest: *bytes.NewBufferString(s.Streamed())}, nil
}

// Stream is the body of a watch that stays open, after its first bytes, until
// its request ends.
type Stream struct {
	Ctx  context.Context //nolint:containedctx // the lifetime of the body
	Rest bytes.Buffer
}

// Read implements io.Reader.
func (o *Stream) Read(p []byte) (int, error) {
	if o.Rest.Len() == 0 {
		<-o.Ctx.Done()
		return 0, o.Ctx.Err()
	}
	return o.Rest.Read(p)
}

// Close implements io.Closer.
func (o *Stream) Close() error { return nil }

// Thing returns the JSON of an object of any kind.
func Thing(kind, namespace, name string, rv int) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":%q,"metadata":{"namespace":%q,"name":%q,"uid":"u-%d",`+
		`"resourceVersion":"%d"}}`,
		kind, namespace, name, rv, rv)
}

// WidgetJSON returns the JSON of a widget in the namespace ns.
func WidgetJSON(name string, rv int) string { return Thing("Widget", "ns", name, rv) }

// WidgetWith returns the JSON of a widget whose metadata has the given content.
func WidgetWith(metadata string) string {
	return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{` + metadata + `}}`
}

// ListOf returns a list of objects at version 500.
func ListOf(kind string, items ...string) string {
	return fmt.Sprintf(`{"kind":%q,"apiVersion":"example.com/v1","metadata":{"resourceVersion":"500"},"items":[%s]}`,
		kind, strings.Join(items, ","))
}

// StreamOf returns a streamed list of objects at version 500.
func StreamOf(items ...string) string {
	var b strings.Builder
	for _, item := range items {
		b.Write(Frame("ADDED", []byte(item)))
	}
	b.Write(BookmarkFrame(500, true))
	return b.String()
}
