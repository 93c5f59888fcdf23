// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pooltest

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Generated is a source that generates its streamed list while it is read. A
// plain watch carries nothing.
type Generated struct{ Next func() []byte }

// Ready implements informerpool.Source.
func (g *Generated) Ready(context.Context, types.NamespacedName) (informerpool.Epoch, error) {
	return "", nil
}

// List implements informerpool.Source.
func (g *Generated) List(context.Context, informerpool.Request) (io.ReadCloser, error) {
	return nil, io.ErrUnexpectedEOF
}

// Watch implements informerpool.Source.
func (g *Generated) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Options.SendInitialEvents == nil {
		return &Stream{Ctx: ctx}, nil
	}
	return &generatedBody{Stream: Stream{Ctx: ctx}, next: g.Next}, nil
}

type generatedBody struct {
	Stream

	next func() []byte
}

func (b *generatedBody) Read(p []byte) (int, error) {
	if b.Rest.Len() == 0 {
		if b.Ctx.Err() != nil {
			return 0, b.Ctx.Err()
		}
		b.Rest.Write(b.next())
	}
	return b.Stream.Read(p)
}

// AnyKind is the key of the objects that PodFrame makes.
var AnyKind = informerpool.Key{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod"}

// EndOfList returns the frame that ends a streamed list of pods.
func EndOfList() []byte {
	return Frame("BOOKMARK",
		[]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"99999999",`+
			`"annotations":{"k8s.io/initial-events-end":"true"}}}`))
}

// PodFrame returns the frame of the i-th pod. rest continues the JSON after its
// resourceVersion.
func PodFrame(i int, namespace, rest string) []byte {
	return Frame("ADDED", fmt.Appendf(nil,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":%q,"name":"object-%d",`+
			`"uid":"%08x-1111-4111-8111-111111111111","resourceVersion":"%d"%s`,
		namespace, i, i, i+1, rest))
}

// Noise returns n characters that hardly compress, the same ones for the same
// i.
func Noise(i, n int) string {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	b := make([]byte, 0, n+16)
	for len(b) < n {
		b = hex.AppendEncode(b, binary.BigEndian.AppendUint64(nil, r.Uint64()))
	}
	return string(b[:n])
}
