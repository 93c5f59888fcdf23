// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
)

// form is the Go type that a read returns objects in.
type form string

const (
	asTyped        form = "typed"
	asUnstructured form = "unstructured"
	asMetadata     form = "metadata"
)

func (k *kind) forms() []form {
	if k.typed {
		return []form{asTyped, asUnstructured, asMetadata}
	}
	return []form{asUnstructured, asMetadata}
}

func (k *kind) list(f form) client.ObjectList {
	gvk := k.gvk
	gvk.Kind += "List"
	switch f {
	case asTyped:
		return &corev1.ConfigMapList{}
	case asMetadata:
		l := &metav1.PartialObjectMetadataList{}
		l.SetGroupVersionKind(gvk)
		return l
	}
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(gvk)
	return l
}

func (k *kind) one(f form) client.Object {
	switch f {
	case asTyped:
		return &corev1.ConfigMap{}
	case asMetadata:
		return clustercache.Kind(k.gvk)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k.gvk)
	return u
}

// readLimit is the caller's deadline.
const readLimit = 5 * time.Second

// list reads a selection.
func (w *world) list(s *site, sel selection, f form, mode clustercache.ReadMode) (map[string]state, error) {
	var origin clustercache.Origin
	return w.listFrom(s, sel, f, mode, &origin)
}

// listFrom is list, and records where the answer came from.
func (w *world) listFrom(s *site, sel selection, f form, mode clustercache.ReadMode,
	origin *clustercache.Origin) (map[string]state, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	opts := []client.ListOption{mode, origin}
	if sel.namespace != "" {
		opts = append(opts, client.InNamespace(sel.namespace))
	}
	if sel.tier != "" {
		opts = append(opts, client.MatchingLabels{"tier": sel.tier})
	}
	if sel.name != "" {
		opts = append(opts, client.MatchingFields{"metadata.name": sel.name})
	}
	list, heard := sel.kind.list(f), w.asking(s)
	if err := w.lookAt("list", w.cc.Cluster(s.key).Reader().List(ctx, list, opts...)); err != nil {
		return nil, err
	}
	out, err := statesOf(sel.kind, list)
	for _, x := range out {
		w.show(x)
	}
	w.answered(question{s, sel, f == asMetadata, mode, origin.Cached}, out, heard)
	if err == nil && origin.Cached {
		w.onward(s, view{sel, origin.Epoch, false}, out)
	}
	return out, err
}

// show records that a read returned an object. Handlers may then receive its
// delete, even if they did not receive the object.
func (w *world) show(x state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shown[x.uid] = true
}

func (w *world) wasShown(uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shown[uid]
}

func statesOf(k *kind, list client.ObjectList) (map[string]state, error) {
	out := map[string]state{}
	add := func(o runtime.Object) error {
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return err
		}
		x := stateOf(&unstructured.Unstructured{Object: raw})
		if isForeign(k, x) {
			return nil
		}
		if _, twice := out[x.key]; twice {
			return fmt.Errorf("%w: %s", errTwice, x)
		}
		out[x.key] = x
		return nil
	}
	var err error
	switch l := list.(type) {
	case *corev1.ConfigMapList:
		for i := range l.Items {
			err = firstError(err, add(&l.Items[i]))
		}
	case *metav1.PartialObjectMetadataList:
		for i := range l.Items {
			err = firstError(err, add(&l.Items[i]))
		}
	case *unstructured.UnstructuredList:
		for i := range l.Items {
			err = firstError(err, add(&l.Items[i]))
		}
	}
	return out, err
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

var errTwice = fmt.Errorf("an object is in a list twice")

// get reads one object; found is false if there is none.
func (w *world) get(s *site, k *kind, key string, f form, mode clustercache.ReadMode) (x state, found bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	namespace, name, _ := strings.Cut(key, "/")
	o, heard, origin := k.one(f), w.asking(s), clustercache.Origin{}
	err = w.lookAt("get", w.cc.Cluster(s.key).Reader().Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o,
		mode,
		&origin))
	q := question{s, selection{kind: k, namespace: namespace, name: name}, f == asMetadata, mode, origin.Cached}
	v := view{q.selection, origin.Epoch, true}
	if apierrors.IsNotFound(err) && isStatusOf(err, name) {
		w.answered(q, nil, heard)
		if origin.Cached {
			w.onward(s, v, nil)
		}
		return state{}, false, nil
	}
	if err != nil {
		return state{}, false, err
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return state{}, false, err
	}
	x = stateOf(&unstructured.Unstructured{Object: raw})
	w.show(x)
	w.answered(q, map[string]state{x.key: x}, heard)
	if origin.Cached {
		w.onward(s, v, map[string]state{x.key: x})
	}
	return x, true, nil
}

// isStatusOf reports whether a NotFound concerns the object, and not its kind
// or the path.
func isStatusOf(err error, name string) bool {
	status := apierrors.APIStatus(nil)
	if !asStatus(err, &status) {
		return false
	}
	d := status.Status().Details
	message := status.Status().Message
	path := strings.Contains(message, "could not find the requested resource") ||
		strings.Contains(message, "no Kubernetes API")
	return d != nil && d.Name == name && !path
}

// check compares every way of reading a kind, and the events of its watches,
// with the truth. In a strict check a read must be answered; otherwise it may
// fail, but any answer must be true. A handler that is still busy is judged by
// what it has received once it is idle: nothing promises it sooner.
func (w *world) check(s *site, strict bool) []string {
	var out []string
	for _, k := range w.kinds {
		out = append(out, w.checkLists(s, k, strict)...)
		out = append(out, w.checkGets(s, k, strict)...)
	}
	for _, sub := range w.watching(s) {
		if w.checkSubject(sub, strict) == "" {
			continue
		}
		w.catchUp(sub)
		if d := w.checkSubject(sub, strict); d != "" {
			out = append(out, d)
		}
	}
	return out
}

// quick is the cheap part of a strict check, with or without the handlers, for
// which it does not wait.
func (w *world) quick(s *site, handlers bool) []string {
	var out []string
	for _, sub := range w.watching(s) {
		if d := w.checkSubject(sub, true); handlers && d != "" {
			out = append(out, d)
		}
		if sub.kind.loose {
			continue
		}
		if d := w.checkList(s, sub.selection, asMetadata, clustercache.CacheOnly, true); d != "" {
			out = append(out, d)
		}
	}
	return out
}

func (w *world) watching(s *site) []*subject {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.subjects), func(sub *subject) bool { return sub.site != s })
}

func (w *world) checkLists(s *site, k *kind, strict bool) []string {
	parts := []selection{{kind: k}}
	if !k.clusterScoped {
		parts = append(parts, selection{kind: k, namespace: "a"}, selection{kind: k, tier: "gold"},
			selection{kind: k, namespace: "b", tier: "gold"})
	}
	for _, sub := range w.watching(s) {
		if sub.kind == k && !slices.Contains(parts, sub.selection) {
			parts = append(parts, sub.selection)
		}
	}
	var out []string
	for _, sel := range parts {
		if w.limited != nil && !w.limited(sel) {
			continue
		}
		for _, f := range k.forms() {
			for _, mode := range w.modes {
				if d := w.checkList(s, sel, f, mode, strict); d != "" {
					out = append(out, d)
				}
			}
		}
	}
	return out
}

func (w *world) checkList(s *site, sel selection, f form, mode clustercache.ReadMode, strict bool) string {
	want, served := s.truth(sel)
	got, err := w.list(s, sel, f, mode)
	switch {
	case err != nil && (!strict || (mode == clustercache.CacheOnly && (sel.kind.loose || !w.covered(s, sel)))):
		return ""
	case err != nil && !served:
		return ""
	case err == nil && !served:
		return fmt.Sprintf("list %s %s %s of what is not served, without an error: %d objects", sel, f, mode, len(got))
	case err != nil:
		return fmt.Sprintf("list %s %s %s: %v", sel, f, mode, err)
	}
	if d := differ(want, got, f == asMetadata); d != "" {
		return fmt.Sprintf("list %s %s %s without an error: %s", sel, f, mode, d)
	}
	return ""
}

// covered reports whether a watch covers a selection.
func (w *world) covered(s *site, sel selection) bool {
	return slices.ContainsFunc(w.watching(s), func(sub *subject) bool { return sub.covers(sel) })
}

// covers reports whether a selection includes another one.
func (s selection) covers(other selection) bool {
	return s.kind == other.kind && (s.namespace == "" || s.namespace == other.namespace) &&
		(s.tier == "" || s.tier == other.tier) && (s.name == "" || s.name == other.name)
}

func (w *world) checkGets(s *site, k *kind, strict bool) []string {
	want, served := s.truth(selection{kind: k})
	if !served {
		return nil
	}
	keys := slices.Sorted(maps.Keys(want))
	keys = keys[:min(3, len(keys))]
	if !k.clusterScoped && w.limited == nil {
		keys = append(keys, "a/never-was")
	}
	var out []string
	for i, key := range keys {
		if w.limited != nil && !w.limited(selection{kind: k, name: key[2:]}) {
			continue
		}
		f := k.forms()[i%len(k.forms())]
		for _, mode := range w.modes {
			if mode == clustercache.CacheOnly && !w.covered(s, selection{kind: k}) {
				continue
			}
			got, found, err := w.get(s, k, key, f, mode)
			x, exists := want[key]
			if f == asMetadata {
				x.value, got.value = "", ""
			}
			switch {
			case err != nil && (!strict || (mode == clustercache.CacheOnly && k.loose)):
			case err != nil:
				out = append(out, fmt.Sprintf("get %s %q %s %s: %v", k.gvk.Kind, key, f, mode, err))
			case found != exists || got != x:
				out = append(out, fmt.Sprintf("get %s %q %s %s without an error: is %t %s, must be %t %s", k.gvk.Kind,
					key, f, mode, found, got, exists, x))
			}
		}
	}
	return out
}

// checkSubject compares the objects that a handler has received with the truth.
// In a check that is not strict they may lag behind, if the library reports
// that.
func (w *world) checkSubject(sub *subject, strict bool) string {
	want, _ := sub.site.truth(sub.selection)
	d := differ(want, sub.folded(), false)
	switch {
	case d == "" || (strict && sub.kind.loose):
		return ""
	case strict:
		return fmt.Sprintf("handler of %s: %s", sub.selection, d)
	}
	ws := sub.watch.Status()
	cluster, err := w.cc.Cluster(sub.site.key).Status()
	if unknown(ws.Informer) || ws.LastError != nil || !ws.Mapped || !ws.Informer.Synced || err != nil ||
		!cluster.Connected || cluster.Stale {
		return ""
	}
	return fmt.Sprintf("handler of %s: %s; and the watch says that it is synced, without an error", sub.selection, d)
}

// unknown reports whether an informer reports objects that it could not accept.
func unknown(s informerpool.Status) bool {
	// Not every version of the library that is tested has these fields.
	n, all := reflect.ValueOf(s).FieldByName("Unknown"), reflect.ValueOf(s).FieldByName("AllUnknown")
	return (n.IsValid() && n.Int() > 0) || (all.IsValid() && all.Bool())
}
