// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"fmt"

	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// kindCheck is the kind that the reflector may store, and how it is checked.
type kindCheck struct {
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
func (k *kindCheck) forget(key *Key) {
	k.listsAs = ""
	if key.Kind == "" {
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
	if len(it.ResourceVersion) > wire.MaxVersion {
		return fmt.Errorf("%w: a resourceVersion of %d bytes", ErrRefused, len(it.ResourceVersion))
	}
	return k.item(it)
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
