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

// learnKind makes sure that the feed knows the kind it may store. The kind is
// part of the key, or the server states it about the resource as a whole. An
// object in a stream never decides it: if a stream began with an object of
// another kind, that kind would be served for the whole resource.
func (f *feed) learnKind(ctx context.Context) error {
	if f.kind != nil {
		return nil
	}
	kind := f.key.Kind
	if source, ok := f.options.Source.(KindSource); ok && kind == "" {
		err := f.pool.callApart("Source", f.key, func() (err error) {
			kind, err = source.KindOf(ctx, Request{Key: f.key, Epoch: f.known})
			return err
		})
		if err != nil {
			return err
		}
	}

	if kind == "" {
		var err error
		if kind, err = f.listKind(ctx); err != nil {
			return err
		}
	}

	f.kind = f.pool.codec.Kind(f.key.Resource.GroupVersion().WithKind(kind))

	return nil
}

// forgetKind makes the next list learn the kind again: a definition may have
// been replaced by one of another kind. A kind that the key names stays.
func (f *feed) forgetKind() {
	f.listsAs = ""
	if f.key.Kind == "" {
		f.kind = nil
	}
}

// listKind requests the shortest possible list, and returns the kind of its
// items.
func (f *feed) listKind(ctx context.Context) (string, error) {
	opts := f.listOptions()
	opts.Limit = 1
	page, err := f.openPage(ctx, opts, questionTimeout)
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
		return "", fmt.Errorf("%s: %w: the list does not name it", f.key, ErrKind)
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
func (f *feed) checkItemKind(it *wire.Item) error {
	if want := f.kind.GVK().Kind; it.Kind != "" && it.Kind != want {
		return fmt.Errorf("%s: %w: %s instead of %s", f.key, ErrKind, wire.Excerpt(it.Kind), want)
	}
	return nil
}

// checkBookmark is checkItemKind for a bookmark, whose version is kept, too.
func (f *feed) checkBookmark(it *wire.Item) error {
	if len(it.ResourceVersion) > wire.MaxVersion {
		return fmt.Errorf("%s: %w: a resourceVersion of %d bytes", f.key, ErrRefused, len(it.ResourceVersion))
	}
	return f.checkItemKind(it)
}

// checkUnnamed is checkItemKind for an object without a kind of its own, as
// lists of Kubernetes' built-in kinds contain. The list may name its kind after
// its items, since the members of a JSON object have no order. Such items stay
// invisible until the end of the page, where checkListKind accepts or refuses
// them all.
func (f *feed) checkUnnamed(header wire.ListHeader) error {
	switch {
	case header.Kind != "":
		return f.checkListKind(header, 1, 1)
	case !f.inPage:
		return &wire.FieldError{Field: "kind", Reason: "missing"}
	}

	f.unnamed++
	return nil
}

// checkListKind is checkItemKind for a list as a whole. A list may have a kind
// that does not determine its items' kind, or that the resource's definition
// has named differently. It is accepted only if it has items and each of them
// names its kind. An empty list of such a kind removes nothing unless lists of
// that kind have held such items before.
func (f *feed) checkListKind(header wire.ListHeader, items, unnamed int) error {
	want := f.kind.GVK().Kind
	if len(header.ResourceVersion) > wire.MaxVersion {
		return fmt.Errorf("%s: %w: a resourceVersion of %d bytes", f.key, ErrRefused, len(header.ResourceVersion))
	}
	named := items > 0 && unnamed == 0
	own := header.Kind != "" && header.APIVersion == f.kind.GVK().GroupVersion().String()
	switch {
	case header.Kind == want+listSuffix:
		return nil
	case own && named:
		f.listsAs = header.Kind
		return nil
	case own && unnamed == 0 && header.Kind == f.listsAs:
		return nil
	case named && (header.Kind == "" || header.Kind == anyList):
		return nil
	}

	return fmt.Errorf("%s: %w: a list of kind %s instead of %s", f.key, ErrKind, wire.Excerpt(header.Kind), want+listSuffix)
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
