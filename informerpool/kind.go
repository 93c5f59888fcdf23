// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"

	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// kindCheck is the kind that the reflector may store. It checks and packs the
// objects of that kind.
type kindCheck struct {
	informer *informer

	packed  *packed.Kind // nil until it is learned
	listsAs string       // kind of lists that held the kind, if it is not the usual one
	inPage  bool         // a page is being read, and its kind is not confirmed yet
	unnamed int          // items of that page whose kind neither they nor, so far, the page named
}

// learn makes sure that the kind is known. It is part of the key, or the server
// states it about the resource as a whole. An object in a stream never decides
// it: if a stream began with an object of another kind, that kind would be
// served for the whole resource.
func (k *kindCheck) learn(ctx context.Context, s *server) error {
	if k.packed != nil {
		return nil
	}
	key := &s.informer.key
	kind := key.Kind
	if kind == "" {
		var err error
		if kind, err = s.kindOf(ctx); err != nil {
			return err
		}
	}
	k.packed = s.informer.pool.codec.Kind(key.Resource.GroupVersion().WithKind(kind))

	return nil
}

// forget makes the next list learn the kind again, unless the key names it: a
// definition may have been replaced by one of another kind.
func (k *kindCheck) forget() {
	k.listsAs = ""
	if k.informer.key.Kind == "" {
		k.packed = nil
	}
}

const listSuffix = "List"

// anyList is the kind of lists that may hold objects of any kind.
const anyList = "List"

// item refuses a response that holds an object of another kind. It
// refuses the whole response rather than that object: the server, or a proxy,
// answered another request, so objects missing from the response may well
// exist.
func (k *kindCheck) item(it *wire.Item) error {
	if want := k.packed.GVK().Kind; it.Kind != "" && it.Kind != want {
		return fmt.Errorf("%w: %s instead of %s", ErrKind, wire.Excerpt(it.Kind), want)
	}
	return nil
}

// bookmark is item for a bookmark, whose version is kept, too.
func (k *kindCheck) bookmark(it *wire.Item) error {
	err := k.item(it)
	if len(it.ResourceVersion) > wire.MaxVersion {
		err = fmt.Errorf("%w: a resourceVersion of %d bytes", ErrRefused, len(it.ResourceVersion))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", k.informer.key, err)
	}
	return nil
}

// unnamedItem is item for an object without a kind of its own, as
// lists of Kubernetes' built-in kinds contain. The list may name its kind after
// its items, since the members of a JSON object have no order. Such items stay
// invisible until the end of the page, where list accepts or refuses
// them all.
func (k *kindCheck) unnamedItem(header wire.ListHeader) error {
	switch {
	case header.Kind != "":
		return k.list(header, 1, 1)
	case !k.inPage:
		return &wire.FieldError{Field: "kind", Reason: "missing"}
	}

	k.unnamed++
	return nil
}

// list is item for a list as a whole. A list may have a kind
// that does not determine its items' kind, or that the resource's definition
// has named differently. It is accepted only if it has items and each of them
// names its kind. An empty list of such a kind removes nothing unless lists of
// that kind have held such items before.
func (k *kindCheck) list(header wire.ListHeader, items, unnamed int) error {
	want := k.packed.GVK().Kind
	if len(header.ResourceVersion) > wire.MaxVersion {
		return fmt.Errorf("%w: a resourceVersion of %d bytes", ErrRefused, len(header.ResourceVersion))
	}
	named := items > 0 && unnamed == 0
	own := header.Kind != "" && header.APIVersion == k.packed.GVK().GroupVersion().String()
	switch {
	case header.Kind == want+listSuffix:
		return nil
	case own && named:
		k.listsAs = header.Kind
		return nil
	case own && unnamed == 0 && header.Kind == k.listsAs:
		return nil
	case named && (header.Kind == "" || header.Kind == anyList):
		return nil
	}

	return fmt.Errorf("%w: a list of kind %s instead of %s",
		ErrKind, wire.Excerpt(header.Kind), want+listSuffix)
}

// read reads an object, and its identity as far as that can be read.
func (k *kindCheck) read(at scanner, header wire.ListHeader, unversioned bool) (*Object, wire.Identity, error) {
	it, err := at.Scan()
	if err != nil {
		return nil, wire.Identify(at.Object()), err
	}
	id := it.Identity()
	if err := k.check(&it, header, unversioned); err != nil {
		return nil, id, err
	}
	o, err := k.pack(it)
	return o, id, err
}

// check validates an object against the key. An error other than
// *wire.FieldError refuses the whole response.
//
// In a list an object of another kind is such an error. In a stream that
// continues a list it makes every object unknown, and the stream ends when the
// server next pauses, so that the frames that arrived together with it are
// still used.
func (k *kindCheck) check(it *wire.Item, header wire.ListHeader, unversioned bool) error {
	if err := k.item(it); err != nil {
		return err
	}
	if it.Kind == "" {
		if err := k.unnamedItem(header); err != nil {
			return err
		}
	}
	expect := wire.Expect{
		APIVersion:  k.informer.key.Resource.GroupVersion().String(),
		Namespace:   k.informer.key.Namespace,
		Unversioned: unversioned,
	}
	return expect.Check(*it)
}

// pack packs an object, after the user's transform, which must not change the
// object's identity.
func (k *kindCheck) pack(it wire.Item) (*Object, error) {
	codec, kind := k.informer.pool.codec, k.packed
	change := k.informer.pool.options.TransformOf(k.informer.key.Resource.GroupResource())
	if change == nil {
		return codec.Pack(kind, it)
	}
	u, err := codec.Unstructured(kind, it)
	if err != nil {
		return nil, err
	}
	// Objects may be secrets, so that little is reported of a panic.
	if err := callback.ApartSecret("Transforms", func() error { return change(u) }); err != nil {
		if p, ok := errors.AsType[*callback.PanicError](err); ok {
			k.informer.pool.calls.Panicked(p.Callback)
		}
		return nil, &wire.FieldError{Field: "transform", Reason: err.Error()}
	}

	changed, err := codec.PackUnstructured(kind, u)
	if err != nil {
		return nil, &wire.FieldError{Field: "transform", Reason: err.Error()}
	}
	if changed.GetNamespace() != it.Namespace || packed.NameOf(changed) != it.Name ||
		string(changed.GetUID()) != it.UID || changed.GetResourceVersion() != it.ResourceVersion {
		return nil, &wire.FieldError{Field: "transform", Reason: "changed the object's identity"}
	}
	return changed, nil
}
