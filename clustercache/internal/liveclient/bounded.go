// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/sanitize"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// bounded bounds what client-go does for one call: the time of all its tries
// together, the memory that the decoded answer takes, what it logs, which at
// high verbosity is whole bodies, and what it quotes in errors. It refuses
// answers of another kind, which client-go would decode into an empty object.
type bounded struct {
	client.Client

	after time.Duration
	limit int64 // of the memory that answers take; negative: none
	item  int   // the largest object that informers accept
}

// answer returns a call whose answer is decoded into obj; nil if none is.
func (l *bounded) answer(obj any) *callState {
	return (&callState{scheme: l.Scheme()}).expect(obj)
}

// do makes one call.
func (l *bounded) do(ctx context.Context, answer *callState, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.after, errDeadline)
	defer cancel()
	if answer.budget, _ = ctx.Value(budgetKey{}).(*budget); answer.budget == nil {
		answer.budget = &budget{limit: l.limit}
	}
	ctx = context.WithValue(klog.NewContext(ctx, logr.Discard()), callKey{}, answer)
	err := call(ctx)
	if err == nil {
		return nil
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		if apistatus.OfGateway(err) {
			return apistatus.AboutOther(sanitize.FromClient(err))
		}
		return sanitize.FromClient(err)
	}

	_, told := errors.AsType[*transport.Error](err) // for example if the connection breaks in the middle of a body
	switch {
	case errors.Is(answer.failed, informerpool.ErrBudget), errors.Is(answer.failed, informerpool.ErrKind), errors.Is(answer.failed, transport.ErrNotKubernetes), errors.Is(answer.failed, ErrAnswer):
		return answer.failed
	case errors.Is(err, transport.ErrBodyTooLarge):
		return fmt.Errorf("%w: %w", informerpool.ErrBudget, err)
	case answer.answered && !told && ctx.Err() == nil:
		return &answerError{err: err}
	}

	return err
}

// answerError is an answer that cannot be decoded. Decoders quote it; the error
// chain stays searchable.
type answerError struct{ err error }

func (e *answerError) Error() string { return fmt.Sprintf("%s (%T)", ErrAnswer, e.err) }

// Is implements errors.Is.
func (e *answerError) Is(target error) bool { return target == ErrAnswer }

// Unwrap returns the cause, whose text contains what the server wrote.
func (e *answerError) Unwrap() error { return e.err }

// Get implements client.Client.
func (l *bounded) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	answer := l.answer(obj)
	if err := l.do(ctx, answer, func(ctx context.Context) error { return l.Client.Get(ctx, key, obj, opts...) }); err != nil {
		return err
	}
	if err := identified(key, obj); err != nil {
		reflect.ValueOf(obj).Elem().SetZero() // the content belongs to another object
		obj.GetObjectKind().SetGroupVersionKind(answer.want)
		return err
	}
	return nil
}

// itself is the name by which some APIs answer with an object of another name.
const itself = "~"

// identified returns an ErrAnswer if an object is not the requested one:
// client-go decodes any document into it, including one without a name.
func identified(key client.ObjectKey, obj client.Object) error {
	name, namespace := obj.GetName(), obj.GetNamespace()
	switch {
	case name == "":
		return errNoName
	case name != key.Name && key.Name != itself, differs(namespace, key.Namespace):
		return errAnother
	}

	return nil
}

// List implements client.Client.
func (l *bounded) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	answer := (&callState{scheme: l.Scheme(), item: l.item}).expectList(list)
	err := l.do(ctx, answer, func(ctx context.Context) error { return l.Client.List(ctx, list, opts...) })
	if err == nil && answer.list != nil {
		answer.list.fill(list, answer.want)
	}
	return err
}

// Apply implements client.Client.
func (l *bounded) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return l.do(ctx, l.written(obj), func(ctx context.Context) error { return l.Client.Apply(ctx, obj, opts...) })
}

// Create implements client.Client.
func (l *bounded) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return l.do(ctx, l.created(obj), func(ctx context.Context) error { return l.Client.Create(ctx, obj, opts...) })
}

// Delete implements client.Client.
func (l *bounded) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return l.do(ctx, l.deleted(obj), func(ctx context.Context) error { return l.Client.Delete(ctx, obj, opts...) })
}

// Update implements client.Client.
func (l *bounded) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return l.do(ctx, l.written(obj), func(ctx context.Context) error { return l.Client.Update(ctx, obj, opts...) })
}

// Patch implements client.Client.
func (l *bounded) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return l.do(ctx, l.written(obj), func(ctx context.Context) error { return l.Client.Patch(ctx, obj, patch, opts...) })
}

// DeleteAllOf implements client.Client.
func (l *bounded) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return l.do(ctx, l.deletedAll(obj), func(ctx context.Context) error { return l.Client.DeleteAllOf(ctx, obj, opts...) })
}

// Status implements client.Client.
func (l *bounded) Status() client.SubResourceWriter { return l.SubResource("status") }

// SubResource implements client.Client.
func (l *bounded) SubResource(name string) client.SubResourceClient {
	return &boundedSubresource{l: l, name: name, inner: l.Client.SubResource(name)}
}

type boundedSubresource struct {
	l     *bounded
	name  string
	inner client.SubResourceClient
}

// Get implements client.SubResourceClient.
func (s *boundedSubresource) Get(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption) error {
	return s.l.do(ctx, s.l.readSubresource(obj, sub), func(ctx context.Context) error { return s.inner.Get(ctx, obj, sub, opts...) })
}

// Create implements client.SubResourceClient.
func (s *boundedSubresource) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return s.l.do(ctx, s.l.subresource(obj, sub, s.name), func(ctx context.Context) error { return s.inner.Create(ctx, obj, sub, opts...) })
}

// Update implements client.SubResourceClient.
func (s *boundedSubresource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	body := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts).SubResourceBody
	if body == nil {
		body = obj
	}
	return s.l.do(ctx, s.l.subresource(obj, body, s.name), func(ctx context.Context) error { return s.inner.Update(ctx, obj, opts...) })
}

// Patch implements client.SubResourceClient.
func (s *boundedSubresource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	body := (&client.SubResourcePatchOptions{}).ApplyOptions(opts).SubResourceBody
	if body == nil {
		body = obj
	}
	return s.l.do(ctx, s.l.subresource(obj, body, s.name), func(ctx context.Context) error { return s.inner.Patch(ctx, obj, patch, opts...) })
}

// Apply implements client.SubResourceClient.
func (s *boundedSubresource) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	body := (&client.SubResourceApplyOptions{}).ApplyOpts(opts).SubResourceBody
	if body == nil {
		body = obj
	}
	answer := s.l.subresource(obj, body, s.name)
	answer.into = s.l.answer(obj).into // it is decoded into obj, whatever was sent
	return s.l.do(ctx, answer, func(ctx context.Context) error { return s.inner.Apply(ctx, obj, opts...) })
}
