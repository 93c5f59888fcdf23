// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package counting

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// body reads a watch.Interface as the JSON frames an API server would
// send.
type body struct {
	ctx      context.Context //nolint:containedctx // an io.Reader has no other way to end with its request
	w        watch.Interface
	versions *Versions
	rest     []byte
}

// Body returns the events of a watch as the JSON frames that an API server
// would send, with the versions that v counts. It ends with ctx, and its Close
// ends the watch.
func (v *Versions) Body(ctx context.Context, w watch.Interface) io.ReadCloser {
	return &body{ctx: ctx, w: w, versions: v}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		select {
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		case event, ok := <-b.w.ResultChan():
			if !ok {
				return 0, io.EOF
			}
			frame, err := b.encode(event)
			if err != nil {
				return 0, err
			}
			b.rest = frame
		}
	}

	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// encode returns the frame of an event, or nil if the event repeats known
// content.
func (b *body) encode(event watch.Event) ([]byte, error) {
	object := event.Object
	if u, ok := object.(*unstructured.Unstructured); ok && event.Type != watch.Bookmark {
		u = u.DeepCopy() // a fake hands the same object to every watcher
		if event.Type == watch.Deleted {
			b.versions.Deleted(u)
		} else {
			if !b.versions.Stamp(u) {
				return nil, nil
			}
		}

		object = u
	}

	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode watch event: %w", err)
	}
	frame, err := json.Marshal(metav1.WatchEvent{Type: string(event.Type), Object: runtime.RawExtension{Raw: raw}})
	if err != nil {
		return nil, fmt.Errorf("encode watch event: %w", err)
	}
	return append(frame, '\n'), nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.w.Stop()
	return nil
}
