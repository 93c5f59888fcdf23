// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/internal/packed"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// KindSource is implemented by sources that know the kind of a resource.
// Informers whose [Key] has no kind query it.
type KindSource interface {
	// KindOf returns the kind of the request's resource, or the empty string if
	// the source does not know it; the informer then lists the resource and
	// takes the kind of that list.
	KindOf(ctx context.Context, r Request) (string, error)
}

// kindCheck is the kind that the reflector may store, and how it is checked.
type kindCheck struct {
	packed  *packed.Kind // nil until it is learned
	listsAs string       // kind of lists that held the kind, if it is not the usual one
	inPage  bool         // a page is being read, and its kind is not confirmed yet
	unnamed int          // items of that page whose kind neither they nor, so far, the page named
}

// learnKind makes sure that the reflector knows the kind it may store. The kind
// is part of the key, or the server states it about the resource as a whole. An
// object in a stream never decides it: if a stream began with an object of
// another kind, that kind would be served for the whole resource.
func (r *reflector) learnKind(ctx context.Context) error {
	if r.kind.packed != nil {
		return nil
	}
	kind := r.informer.key.Kind
	if source, ok := r.options.Source.(KindSource); ok && kind == "" {
		err := r.informer.pool.calls.Apart("Source", &r.informer.key, func() (err error) {
			kind, err = source.KindOf(ctx, Request{Key: r.informer.key, Epoch: r.at.epoch})
			return err
		})
		if err != nil {
			return err
		}
	}

	if kind == "" {
		var err error
		if kind, err = r.listKind(ctx); err != nil {
			return err
		}
	}

	r.kind.packed = r.informer.pool.codec.Kind(r.informer.key.Resource.GroupVersion().WithKind(kind))

	return nil
}

// forgetKind makes the next list learn the kind again: a definition may have
// been replaced by one of another kind. A kind that the key names stays.
func (r *reflector) forgetKind() {
	r.kind.listsAs = ""
	if r.informer.key.Kind == "" {
		r.kind.packed = nil
	}
}

// listKind requests the shortest possible list, and returns the kind of its
// items.
func (r *reflector) listKind(ctx context.Context) (string, error) {
	opts := r.listOptions()
	opts.Limit = 1
	page, err := r.openPage(ctx, opts, questionTimeout)
	if err != nil {
		return "", err
	}
	defer page.close()
	for err == nil {
		err = page.next()
	}
	if !errors.Is(err, io.EOF) {
		return "", err
	}
	kind, ok := strings.CutSuffix(page.header().Kind, listSuffix)
	if !ok || kind == "" {
		return "", fmt.Errorf("%s: %w: the list does not name it", r.informer.key, ErrKind)
	}
	return kind, nil
}

const listSuffix = "List"

// anyList is the kind of lists that may hold objects of any kind.
const anyList = "List"

// checkItemKind refuses a response that holds an object of another kind. It
// refuses the whole response rather than that object: the server, or a proxy,
// answered another request, so objects missing from the response may well
// exist.
func (r *reflector) checkItemKind(it *wire.Item) error {
	if want := r.kind.packed.GVK().Kind; it.Kind != "" && it.Kind != want {
		return fmt.Errorf("%s: %w: %s instead of %s", r.informer.key, ErrKind, wire.Excerpt(it.Kind), want)
	}
	return nil
}

// checkBookmark is checkItemKind for a bookmark, whose version is kept, too.
func (r *reflector) checkBookmark(it *wire.Item) error {
	if len(it.ResourceVersion) > wire.MaxVersion {
		return fmt.Errorf("%s: %w: a resourceVersion of %d bytes", r.informer.key, ErrRefused, len(it.ResourceVersion))
	}
	return r.checkItemKind(it)
}

// checkUnnamed is checkItemKind for an object without a kind of its own, as
// lists of Kubernetes' built-in kinds contain. The list may name its kind after
// its items, since the members of a JSON object have no order. Such items stay
// invisible until the end of the page, where checkListKind accepts or refuses
// them all.
func (r *reflector) checkUnnamed(header wire.ListHeader) error {
	switch {
	case header.Kind != "":
		return r.checkListKind(header, 1, 1)
	case !r.kind.inPage:
		return &wire.FieldError{Field: "kind", Reason: "missing"}
	}

	r.kind.unnamed++
	return nil
}

// checkListKind is checkItemKind for a list as a whole. A list may have a kind
// that does not determine its items' kind, or that the resource's definition
// has named differently. It is accepted only if it has items and each of them
// names its kind. An empty list of such a kind removes nothing unless lists of
// that kind have held such items before.
func (r *reflector) checkListKind(header wire.ListHeader, items, unnamed int) error {
	want := r.kind.packed.GVK().Kind
	if len(header.ResourceVersion) > wire.MaxVersion {
		return fmt.Errorf("%s: %w: a resourceVersion of %d bytes", r.informer.key, ErrRefused, len(header.ResourceVersion))
	}
	named := items > 0 && unnamed == 0
	own := header.Kind != "" && header.APIVersion == r.kind.packed.GVK().GroupVersion().String()
	switch {
	case header.Kind == want+listSuffix:
		return nil
	case own && named:
		r.kind.listsAs = header.Kind
		return nil
	case own && unnamed == 0 && header.Kind == r.kind.listsAs:
		return nil
	case named && (header.Kind == "" || header.Kind == anyList):
		return nil
	}

	return fmt.Errorf("%s: %w: a list of kind %s instead of %s",
		r.informer.key, ErrKind, wire.Excerpt(header.Kind), want+listSuffix)
}

// discoveredKind returns the kind of a resource in a discovery document.
func discoveredKind(doc *metav1.APIResourceList, resource string) string {
	for i := range doc.APIResources {
		if r := &doc.APIResources[i]; r.Name == resource {
			return r.Kind
		}
	}
	return ""
}
