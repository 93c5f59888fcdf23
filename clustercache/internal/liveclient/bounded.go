// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/misfit"
	"github.com/fleetcache/fleetcache/internal/sanitize"
	"github.com/fleetcache/fleetcache/internal/transport"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// bounded bounds what client-go does for one call: the time of all its tries
// together, the memory that the decoded answer takes, what it logs, which at
// high verbosity is whole bodies, and what it quotes in errors. It refuses
// answers of another kind, which client-go would decode into an empty object.
type bounded struct{ from *Factory }

var _ client.Reader = (*bounded)(nil)

// ErrDeadline indicates that a call or a request took too long.
var ErrDeadline = errors.New("request time-out")

// answer returns a call whose answer is decoded into obj; nil if none is.
func (l *bounded) answer(obj any) *callState {
	return (&callState{scheme: l.Scheme()}).expect(obj)
}

// calling makes a call with a client of client-go.
type calling func(context.Context, client.Client) error

// do makes one call.
func (l *bounded) do(ctx context.Context, answer *callState, call calling) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.from.config.Timeout, ErrDeadline)
	defer cancel()
	if answer.budget, _ = ctx.Value(budgetKey{}).(*budget); answer.budget == nil {
		answer.budget = &budget{limit: l.from.config.MaxBytes}
	}
	ctx = context.WithValue(klog.NewContext(ctx, logr.Discard()), callKey{}, answer)
	err := l.from.follow(ctx, call)
	if err == nil {
		return nil
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		if apistatus.OfGateway(err) {
			return apistatus.AboutOther(sanitize.FromClient(err))
		}
		return sanitize.FromClient(err)
	}

	if errors.Is(err, errScope) {
		return err
	}

	// A connection may also break in the middle of a body.
	_, broken := errors.AsType[*transport.Error](err)
	switch {
	case errors.Is(answer.failed, informerpool.ErrBudget), errors.Is(answer.failed, informerpool.ErrKind),
		errors.Is(answer.failed, transport.ErrNotKubernetes), errors.Is(answer.failed, ErrAnswer):
		return answer.failed
	case errors.Is(err, transport.ErrBodyTooLarge):
		return fmt.Errorf("%w: %w", informerpool.ErrBudget, err)
	case answer.answered && !broken && ctx.Err() == nil:
		return answer.misfit(err)
	}

	return err
}

// misfit returns the error of an answer that cannot be decoded.
func (c *callState) misfit(err error) error {
	of := c.name
	if of == "" && c.whose != nil {
		of = nameOf(c.whose.Namespace, c.whose.Name)
	}
	e := &answerError{of: of, err: err}
	if c.into != nil {
		e.field = misfit.Find(c.raw, c.into)
	}
	return e
}

// answerError is an answer that cannot be decoded. Decoders quote it; the error
// chain stays searchable.
type answerError struct {
	of    string // the object; may be empty
	field string // that does not fit, and how; empty if unknown
	err   error
}

func (e *answerError) Error() string {
	text := ErrAnswer.Error()
	if of := strings.TrimSpace(e.of); of != "" {
		text += ": " + of
	}
	if e.field == "" {
		return fmt.Sprintf("%s (%T)", text, e.err)
	}
	return text + ": " + e.field
}

// nameOf returns the name of an object, of which others wrote, in errors.
func nameOf(namespace, name string) string {
	switch {
	case name == "":
		return ""
	case namespace == "":
		return wire.Excerpt(name)
	}
	return wire.Excerpt(namespace + "/" + name)
}

// Is implements errors.Is.
func (e *answerError) Is(target error) bool { return target == ErrAnswer }

// Unwrap returns the cause, whose text contains what the server wrote.
func (e *answerError) Unwrap() error { return e.err }

// Get implements client.Reader.
func (l *bounded) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	answer := l.answer(obj)
	answer.name = nameOf(key.Namespace, key.Name)
	err := l.do(ctx, answer, func(ctx context.Context, c client.Client) error { return c.Get(ctx, key, obj, opts...) })
	if err != nil {
		return err
	}
	if err := identified(key, obj); err != nil {
		reflect.ValueOf(obj).Elem().SetZero() // the content belongs to another object
		obj.GetObjectKind().SetGroupVersionKind(answer.want)
		return fmt.Errorf("%s: %w", answer.name, err)
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

// List implements client.Reader.
func (l *bounded) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	answer := (&callState{scheme: l.Scheme(), item: l.from.config.MaxObjectBytes}).expectList(list)
	namespace := (&client.ListOptions{}).ApplyOptions(opts).Namespace
	return l.do(ctx, answer, func(ctx context.Context, c client.Client) error {
		if err := c.List(ctx, list, opts...); err != nil {
			return err
		}
		if answer.list != nil {
			answer.list.fill(list, answer.want)
		}
		if namespace == "" {
			return nil
		}
		return l.from.ofNamespace(list, answer.want)
	})
}

// Scheme implements client.Client.
func (l *bounded) Scheme() *runtime.Scheme { return l.from.config.Scheme }

// RESTMapper implements client.Client.
func (l *bounded) RESTMapper() meta.RESTMapper { return l.from.config.Mapper.RESTMapper() }

// GroupVersionKindFor implements client.Client.
func (l *bounded) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, l.Scheme())
}

// IsObjectNamespaced implements client.Client.
func (l *bounded) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return apiutil.IsObjectNamespaced(obj, l.Scheme(), l.RESTMapper())
}
