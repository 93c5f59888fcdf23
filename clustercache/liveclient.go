// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/foreign"
	"github.com/fleetcache/fleetcache/internal/seam"
)

// liveClient bounds what client-go does for one call: the time of all its tries together, what it logs, which at high verbosity is
// whole bodies, and what it quotes in errors.
type liveClient struct {
	client.Client

	after time.Duration
}

// do makes one call.
func (l *liveClient) do(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.after, errDeadline)
	defer cancel()
	answered := &atomic.Bool{}
	ctx = context.WithValue(klog.NewContext(ctx, logr.Discard()), answeredKey{}, answered)
	err := call(ctx)
	if err == nil {
		return nil
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return foreign.FromClient(err)
	}
	_, told := errors.AsType[*seam.Error](err) // as when the connection breaks in the middle of a body
	if answered.Load() && !told && ctx.Err() == nil {
		return &answerError{err: err}
	}
	return err
}

// answeredKey is where a call notes that a server answered with a success.
type answeredKey struct{}

// noteAnswer remembers that what goes wrong from here on is the fault of the answer.
func noteAnswer(ctx context.Context, resp *http.Response) {
	if answered, ok := ctx.Value(answeredKey{}).(*atomic.Bool); ok && resp.StatusCode < http.StatusBadRequest {
		answered.Store(true)
	}
}

// answerError is an answer that makes no sense. Decoders quote it; the chain stays searchable.
type answerError struct{ err error }

func (e *answerError) Error() string { return fmt.Sprintf("answer cannot be used (%T)", e.err) }

// Unwrap returns the cause, whose text holds what the server wrote.
func (e *answerError) Unwrap() error { return e.err }

// Get implements client.Client.
func (l *liveClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return l.do(ctx, func(ctx context.Context) error { return l.Client.Get(ctx, key, obj, opts...) })
}

// List implements client.Client.
func (l *liveClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.do(ctx, func(ctx context.Context) error { return l.Client.List(ctx, list, opts...) })
}

// Apply implements client.Client.
func (l *liveClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return l.do(ctx, func(ctx context.Context) error { return l.Client.Apply(ctx, obj, opts...) })
}

// Create implements client.Client.
func (l *liveClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return l.do(ctx, func(ctx context.Context) error { return l.Client.Create(ctx, obj, opts...) })
}

// Delete implements client.Client.
func (l *liveClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return l.do(ctx, func(ctx context.Context) error { return l.Client.Delete(ctx, obj, opts...) })
}

// Update implements client.Client.
func (l *liveClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return l.do(ctx, func(ctx context.Context) error { return l.Client.Update(ctx, obj, opts...) })
}

// Patch implements client.Client.
func (l *liveClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return l.do(ctx, func(ctx context.Context) error { return l.Client.Patch(ctx, obj, patch, opts...) })
}

// DeleteAllOf implements client.Client.
func (l *liveClient) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return l.do(ctx, func(ctx context.Context) error { return l.Client.DeleteAllOf(ctx, obj, opts...) })
}

// Status implements client.Client.
func (l *liveClient) Status() client.SubResourceWriter { return l.SubResource("status") }

// SubResource implements client.Client.
func (l *liveClient) SubResource(name string) client.SubResourceClient {
	return &liveSubResource{l: l, inner: l.Client.SubResource(name)}
}

type liveSubResource struct {
	l     *liveClient
	inner client.SubResourceClient
}

// Get implements client.SubResourceClient.
func (s *liveSubResource) Get(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption) error {
	return s.l.do(ctx, func(ctx context.Context) error { return s.inner.Get(ctx, obj, sub, opts...) })
}

// Create implements client.SubResourceClient.
func (s *liveSubResource) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return s.l.do(ctx, func(ctx context.Context) error { return s.inner.Create(ctx, obj, sub, opts...) })
}

// Update implements client.SubResourceClient.
func (s *liveSubResource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.l.do(ctx, func(ctx context.Context) error { return s.inner.Update(ctx, obj, opts...) })
}

// Patch implements client.SubResourceClient.
func (s *liveSubResource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.l.do(ctx, func(ctx context.Context) error { return s.inner.Patch(ctx, obj, patch, opts...) })
}

// Apply implements client.SubResourceClient.
func (s *liveSubResource) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	return s.l.do(ctx, func(ctx context.Context) error { return s.inner.Apply(ctx, obj, opts...) })
}
