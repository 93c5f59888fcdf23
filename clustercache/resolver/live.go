// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/callback"
)

// read answers by requests to the hub.
func (h *HubResolver) read(ctx context.Context, cluster Cluster) (Access, error) {
	primary, err := h.find(ctx, cluster)
	if err != nil {
		return Access{}, err
	}
	return h.build(cluster, primary, func(id objectID) (any, error) { return h.get(ctx, id) })
}

// build makes the answer for a cluster from its primary object and the results
// of get.
func (h *HubResolver) build(
	cluster Cluster, primary found, get func(objectID) (any, error),
) (access Access, err error) {
	// Decode and similar functions are the user's, and receive secrets.
	failed := callback.ApartSecret("a function of the resolver's options", func() error {
		access, err = h.buildUnprotected(cluster, primary, get)
		return nil
	})
	if failed != nil {
		return Access{}, fail(cluster, primary.ref, failed)
	}
	return access, err
}

func (h *HubResolver) buildUnprotected(
	cluster Cluster, primary found, get func(objectID) (any, error),
) (Access, error) {
	if err := cmp.Or(primary.nameless(cluster), primary.failed); err != nil {
		return Access{}, fail(cluster, primary.ref, err)
	}
	labels := map[string]string{}
	maps.Copy(labels, primary.labels)
	if ready := h.options.ReadyObject; ready != nil {
		id := ready.id(cluster)
		value, err := get(id)
		if err != nil {
			return Access{}, fail(cluster, id.ObjectRef, err)
		}
		judged, _ := value.(verdict)
		if !judged.ready {
			return Access{}, fail(cluster, id.ObjectRef, ErrNotReady)
		}
		maps.Copy(labels, judged.labels)
	}

	access, err := h.convention.build(input{
		cluster: cluster,
		ref:     primary.ref,
		primary: primary.value,
		get:     func(ref ObjectRef) (any, error) { return get(objectID{ObjectRef: ref}) },
	})
	if err != nil {
		return Access{}, fail(cluster, primary.ref, err)
	}
	maps.Copy(labels, access.labels)
	access.labels = labels

	return access, nil
}

// find returns the primary object that describes the cluster.
func (h *HubResolver) find(ctx context.Context, cluster Cluster) (found, error) {
	if h.convention.key == nil {
		all, err := h.list(ctx)
		if err != nil {
			return found{}, fail(cluster, ObjectRef{}, err)
		}
		unknown := slices.IndexFunc(all, func(f found) bool { return f.failed != nil })
		var maybe found
		if unknown >= 0 {
			maybe = all[unknown]
		}
		all = slices.DeleteFunc(all, func(f found) bool { return !slices.Contains(f.clusters, cluster) })
		switch {
		case len(all) == 0 && maybe.failed != nil:
			return found{}, maybe.mayStandFor(cluster)
		case len(all) == 0:
			return found{}, h.missing(cluster)
		}

		return slices.MinFunc(all, compareCandidates(cluster)), nil
	}

	kind, key := h.convention.primary, h.convention.key(cluster)
	if key.Name == "" || kind.namespace != "" && key.Namespace != kind.namespace {
		return found{}, h.missing(cluster)
	}
	out, ours, err := h.getPrimary(ctx, key)
	if err != nil {
		return found{}, fail(cluster, kind.ref(key), err)
	}
	if !ours || !slices.Contains(out.clusters, cluster) {
		return found{}, h.missing(cluster)
	}
	second, err := h.second(out, func(key client.ObjectKey) (any, error) {
		peer, _, err := h.getPrimary(ctx, key)
		return peer.value, err
	})
	switch {
	case err != nil:
		return found{}, fail(cluster, kind.ref(key), err)
	case second:
		return found{}, h.missing(cluster)
	}

	return out, nil
}

// getPrimary reads an object of the primary kind; false if it does not exist,
// or does not belong to the convention.
func (h *HubResolver) getPrimary(ctx context.Context, key client.ObjectKey) (found, bool, error) {
	object := h.convention.primary.object()
	err := h.hub.Get(quiet(ctx), key, object)
	switch {
	case isAbsent(err):
		return found{}, false, nil
	case err != nil:
		return found{}, false, &hubError{err}
	}
	out, ours := h.primary(object)

	return out, ours, nil
}

// second reports whether a primary object describes no cluster of its own.
func (h *HubResolver) second(f found, peer func(client.ObjectKey) (any, error)) (bool, error) {
	if h.convention.second == nil || f.failed != nil {
		return false, nil
	}
	return h.convention.second(f.value, peer)
}

// missing returns the error for a cluster that no object describes.
func (h *HubResolver) missing(cluster Cluster) error {
	kind := h.convention.primary
	var key client.ObjectKey
	if h.convention.key != nil {
		key = h.convention.key(cluster)
	}
	switch {
	case key.Name == "":
		return fail(cluster, ObjectRef{}, ErrClusterNotFound)
	case kind.gvk == secretGVK:
		return fail(cluster, kind.ref(key), kind.lacks(ErrSecretNotFound))
	}

	return fail(cluster, kind.ref(key), kind.lacks(ErrClusterNotFound))
}

// absent is missing for a resolver that also watches a [ReadyObject]: without
// that object the cluster does not exist, whichever of the two objects vanished
// first. If the hub does not answer, the error stays the same.
func (h *HubResolver) absent(ctx context.Context, cluster Cluster, missing error) error {
	ready := h.options.ReadyObject
	if ready == nil || !errors.Is(missing, ErrSecretNotFound) {
		return missing
	}
	id := ready.id(cluster)
	if _, err := h.get(ctx, id); errors.Is(err, ErrClusterNotFound) {
		return fail(cluster, id.ObjectRef, err)
	}
	return missing
}

// primary projects an object of the primary kind.
func (h *HubResolver) primary(object client.Object) (found, bool) {
	out, ours := h.convention.primary.selects(object)
	if !ours {
		return out, false
	}
	if out.failed == nil {
		out.failed = callback.ApartSecret("ID", func() error {
			out.name(object, h.convention.clusters(object), h.convention.nameField)
			return nil
		})
	}

	if out.failed != nil {
		callback.Log(h.options.Logger, out.failed, "Nothing says which cluster an object stands for",
			"object", out.ref.String())
		out.standIn, out.unnamed = client.ObjectKeyFromObject(object), out.failed
		out.clusters = []Cluster{out.standIn}
	}
	return out, true
}

func (h *HubResolver) list(ctx context.Context) ([]found, error) {
	objects, _, err := listAll(ctx, h.hub, h.convention.primary)
	if err != nil {
		return nil, &hubError{err}
	}
	var out []found
	values := map[client.ObjectKey]any{}
	for _, object := range objects {
		if f, ours := h.primary(object); ours {
			out = append(out, f)
			values[client.ObjectKeyFromObject(object)] = f.value
		}
	}

	return slices.DeleteFunc(out, func(f found) bool {
		second, _ := h.second(f, func(key client.ObjectKey) (any, error) { return values[key], nil })
		return second
	}), nil
}

// isAbsent reports whether an API server answered that there is no such object.
// The 404 of a gateway, which contains no status of an API server, is a failure
// of the hub.
func isAbsent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// get reads another object.
func (h *HubResolver) get(ctx context.Context, id objectID) (any, error) {
	kind, ok := h.kindOf(id)
	if !ok {
		return nil, missingObject(id)
	}
	object := kind.object()
	err := h.hub.Get(quiet(ctx), client.ObjectKey{Namespace: id.Namespace, Name: id.Name}, object)
	if isAbsent(err) {
		return nil, missingObject(id)
	}
	if err != nil {
		return nil, &hubError{err}
	}
	f, ours := kind.selects(object)
	if !ours {
		return nil, missingObject(id)
	}
	return f.value, f.failed
}

// kindOf returns the kind by which an object is read and watched.
func (h *HubResolver) kindOf(id objectID) (kind, bool) {
	for _, k := range h.kinds()[1:] {
		if k.has(id) {
			return k, true
		}
	}
	return named(id.ObjectRef)
}

// kinds returns the kinds that are watched as a whole; the first is the primary
// one.
func (h *HubResolver) kinds() []kind {
	out := append([]kind{h.convention.primary}, h.convention.related...)
	if ready := h.options.ReadyObject; ready != nil {
		out = append(out, ready.kind(h.options.Namespace))
	}
	return out
}

func missingObject(id objectID) error {
	if !id.ready && (id.Kind == kindSecret || id.Kind == kindConfigMap) {
		return ErrSecretNotFound
	}
	return ErrClusterNotFound
}

// pageSize bounds the number of objects in one response of a list.
const pageSize = 500

// listAll lists a kind, page by page, and returns the resource version to watch
// from.
func listAll(ctx context.Context, hub client.Reader, k kind) ([]client.Object, string, error) {
	var out []client.Object
	options := k.options()
	options.Limit = pageSize
	for {
		page := k.list()
		if err := hub.List(quiet(ctx), page, &options); err != nil {
			return nil, "", err
		}
		items, err := meta.ExtractList(page)
		if err != nil {
			return nil, "", err
		}
		for _, item := range items {
			if object, ok := item.(client.Object); ok {
				out = append(out, object)
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return out, page.GetResourceVersion(), nil
		}
	}
}

// quiet returns a context for requests for Secrets, which client-go does not
// log: at high verbosity it would log whole bodies.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }
