// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/internal/meter"
	"github.com/fleetcache/fleetcache/internal/sanitize"
	"github.com/fleetcache/fleetcache/internal/wire"
)

const (
	// An answer may take a liveShare-th of the limit plus liveFactor times its
	// size, so that short answers cannot take as much as long ones: real
	// objects are estimated at five to nine times their JSON.
	liveShare  = 16
	liveFactor = 16
	// liveCopies is how many copies of a body client-go has at once while it
	// reads the body.
	liveCopies = 3
	// liveStatus bounds the memory of a status in an answer that is not a
	// success.
	liveStatus = 32 << 20

	mediaJSON = "application/json"
)

// liveBudget is the memory that the answers to one call may take, for all tries
// and pages together.
type liveBudget struct {
	limit int64 // negative: none
	read  int64 // bytes of bodies
	taken int64 // memory of the objects decoded from them
}

// check returns an ErrBudget if a body that is being read would take more, in
// addition to the memory taken so far, than the budget has.
func (b *liveBudget) check(more int64) error {
	if b.limit < 0 {
		return nil
	}
	allowed := min(b.limit, b.limit/liveShare+liveFactor*b.read)
	if b.taken+more <= allowed {
		return nil
	}
	if allowed < b.limit {
		return fmt.Errorf("%w: %d bytes of the answer take more than %d in memory", ErrBudget, b.read, allowed)
	}
	return fmt.Errorf("%w: the answer takes more than %d bytes in memory (Options.MaxLiveBytes)", ErrBudget, allowed)
}

// liveCall is one call of a live client: the type that its answer is decoded
// into, and the memory that it may take. Only the caller's goroutine uses it.
type liveCall struct {
	budget *liveBudget
	scheme *runtime.Scheme

	want  schema.GroupVersionKind // of the object or the items; empty: any
	also  []string                // kinds that may answer instead
	whose *whose                  // whose object it must be; nil: any
	into  reflect.Type            // nil: nothing is decoded
	write bool                    // the kind has to be named
	// creates means that the server may answer with the object that it created
	// from the one that was sent.
	creates bool
	// deletes means that the answer is not decoded, however large it is.
	deletes bool
	list    *liveItems // nil: one object is expected
	item    int        // the largest object of a list in JSON, if larger than usual

	answered bool
	failed   error // why the answer was refused
}

// liveCallKey is the context key of a request's call.
type liveCallKey struct{}

// liveBudgetKey is the context key of the budget that all calls of a read
// share.
type liveBudgetKey struct{}

// withLiveBudget makes all calls with the context share one budget.
func withLiveBudget(ctx context.Context, limit int64) context.Context {
	return context.WithValue(ctx, liveBudgetKey{}, &liveBudget{limit: limit})
}

func liveCallOf(ctx context.Context) *liveCall {
	call, _ := ctx.Value(liveCallKey{}).(*liveCall)
	return call
}

// expect records the type that an answer is decoded into, and its kind if
// known.
func (c *liveCall) expect(obj any) *liveCall {
	if absent(obj) {
		return c
	}
	c.into = reflect.TypeOf(obj)
	if _, ok := obj.(runtime.Unstructured); ok {
		c.into = reflect.TypeFor[map[string]any]()
	}
	c.want = kindSent(obj, c.scheme) // without it the call fails by itself
	return c
}

// kindSent returns the kind of a call's argument, an object or an apply
// configuration; empty if it is not known.
func kindSent(obj any, scheme *runtime.Scheme) (gvk schema.GroupVersionKind) {
	if absent(obj) {
		return gvk
	}
	switch o := obj.(type) {
	case runtime.Object:
		gvk, _ = apiutil.GVKForObject(o, scheme)
	case applied:
		gvk = schema.FromAPIVersionAndKind(deref(o.GetAPIVersion()), deref(o.GetKind()))
	}

	return gvk
}

// absent reports whether there is nothing to decode into.
func absent(obj any) bool {
	v := reflect.ValueOf(obj)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// expectList is expect for a list: its kind is that of the items.
func (c *liveCall) expectList(list client.ObjectList) *liveCall {
	if absent(list) {
		return c
	}
	c.expect(list)
	kind, ok := strings.CutSuffix(c.want.Kind, listSuffix)
	_, typed := c.scheme.New(c.want)
	if c.want.Kind = kind; kind == "" || !ok && typed == nil {
		c.want = schema.GroupVersionKind{}
	}
	c.list = newLiveItems(list)

	return c
}

// fail keeps an error, since client-go quotes and wraps the errors that it
// gets.
func (c *liveCall) fail(err error) error {
	c.failed = err
	return err
}

// check returns an ErrKind if a document has another kind. The answer to a read
// that does not name its kind is decoded as the requested one, as client-go
// does. The answer to a write has to name it: it is decoded into the object
// that was sent, which would hide anything that is missing.
func (c *liveCall) check(apiVersion, kind string) error {
	if c.write && kind == "" {
		return errNoObject
	}
	if c.want.Empty() {
		return nil
	}
	if kind == "" || kind == c.want.Kind && isVersion(apiVersion, c.want) || c.isMetadata(apiVersion, kind) {
		return nil
	}
	if slices.Contains(c.also, kind) || c.creates && c.isMadeOf(apiVersion) {
		return nil
	}
	return fmt.Errorf("%w: %s of %s instead of %s of %s", ErrKind,
		wire.Excerpt(kind), wire.Excerpt(apiVersion), wire.Excerpt(c.want.Kind), wire.Excerpt(c.want.GroupVersion().String()))
}

func isVersion(apiVersion string, gvk schema.GroupVersionKind) bool {
	return apiVersion == "" || apiVersion == gvk.GroupVersion().String()
}

// isMetadata reports whether a document is metadata only, and was requested as
// such.
func (c *liveCall) isMetadata(apiVersion, kind string) bool {
	return (c.deletes || c.into == reflect.TypeFor[*metav1.PartialObjectMetadata]()) && kind == "PartialObjectMetadata" &&
		strings.HasPrefix(apiVersion, metav1.GroupName+"/")
}

// answers is the round tripper that bounds and checks the answers to calls
// before client-go decodes them, since client-go decodes any kind that a body
// names.
type answers struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a *answers) RoundTrip(req *http.Request) (*http.Response, error) {
	call := liveCallOf(req.Context())
	if call == nil {
		return a.next.RoundTrip(req)
	}
	out := req.WithContext(req.Context())
	out.Header = req.Header.Clone()
	out.Header.Set("Accept", onlyJSON(req.Header.Get("Accept")))
	resp, err := a.next.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		call.admitFailure(resp)
		return resp, nil
	}
	if err := call.admit(resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}

	return resp, nil
}

// onlyJSON returns the JSON types of an Accept header: other encodings cannot
// be measured while they are read.
func onlyJSON(accept string) string {
	var kept []string
	for t := range strings.SplitSeq(accept, ",") {
		if media, _, err := mime.ParseMediaType(t); err == nil && media == mediaJSON {
			kept = append(kept, t)
		}
	}
	if len(kept) == 0 {
		return mediaJSON
	}
	return strings.Join(kept, ",")
}

// admit wraps the body of a successful answer to enforce the budget.
func (c *liveCall) admit(resp *http.Response) error {
	c.answered = true
	switch {
	case resp.StatusCode != http.StatusNoContent && resp.ContentLength != 0:
	case c.write:
		return c.fail(errNoObject)
	default:
		return nil
	}

	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != mediaJSON && media != "" {
		return c.fail(fmt.Errorf("%w: %q instead of %s", ErrNotKubernetes, sanitize.Text(media), mediaJSON))
	}

	switch {
	case c.list != nil:
		resp.ContentLength = -1
		resp.Body = &listBody{ReadCloser: resp.Body, call: c}
	case c.deletes:
		resp.Body = &objectBody{ReadCloser: resp.Body, call: c, meter: meter.New(reflect.TypeFor[metav1.Status]())}
	case c.into != nil:
		resp.Body = &objectBody{ReadCloser: resp.Body, call: c, meter: meter.New(c.into)}
	}

	return nil
}

// admitFailure reduces an unsuccessful answer to text and a status: client-go
// would decode any other kind as well.
func (c *liveCall) admitFailure(resp *http.Response) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if strings.HasPrefix(media, "text/") {
		return
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	m := meter.New(reflect.TypeFor[metav1.Status]())
	m.Feed(body)
	if _, kind := m.TypeMeta(); err != nil || media != mediaJSON || kind != "Status" || m.Cost() > liveStatus {
		body = nil
	}
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(string(body))), int64(len(body))
}

// objectBody is the body of one object. It ends with an error if the object
// would take more memory than its call may, or has another kind.
type objectBody struct {
	io.ReadCloser

	call  *liveCall
	meter *meter.Meter
	read  int64
}

// Read implements io.Reader.
func (b *objectBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.meter.Feed(p[:n])
	b.read += int64(n)
	b.call.budget.read += int64(n)
	if over := b.call.budget.check(b.meter.Cost() + liveCopies*b.read); over != nil && !b.call.deletes {
		return 0, b.call.fail(over)
	}
	if errors.Is(err, io.EOF) {
		b.call.budget.taken += b.meter.Cost() + liveCopies*b.read
		if other := b.call.checkObject(b.meter); other != nil {
			return 0, b.call.fail(other)
		}
	}

	return n, err
}

// liveDoor sends lists, which account for themselves, through the client that
// has no budget for bodies.
type liveDoor struct{ unary, stream http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d *liveDoor) RoundTrip(req *http.Request) (*http.Response, error) {
	if call := liveCallOf(req.Context()); call != nil && call.list != nil {
		return d.stream.RoundTrip(req)
	}
	return d.unary.RoundTrip(req)
}

// unstructuredList is the type that lists of unstructured objects are decoded
// into.
var unstructuredList = reflect.TypeFor[unstructured.UnstructuredList]()
