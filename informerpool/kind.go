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

// KindSource is implemented by sources that know which kind a resource has.
// Informers whose [Key] names no kind ask them.
type KindSource interface {
	// KindOf returns the kind of the request's resource, and nothing if the
	// source cannot tell: a list is asked for then, and its kind counts.
	KindOf(ctx context.Context, r Request) (string, error)
}

// learnKind makes sure that the feed knows which kind it may store. The kind is
// part of the question, or the server states it about the resource as a whole;
// an object in a stream never decides it, since a stream that begins with an
// object of another kind would have that kind served for the whole resource.
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

// forgetKind makes the next list learn the kind anew: a definition may have
// been replaced by one of another kind. A kind that was asked for stays.
func (f *feed) forgetKind() {
	f.listsAs = ""
	if f.key.Kind == "" {
		f.kind = nil
	}
}

// listKind asks for the shortest list there is, and returns the kind of its
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

// checkItemKind refuses an answer that holds an object of another kind. It does
// not refuse that object alone: the server, or something before it, answered
// another question, so that what is missing in the answer may well exist.
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

// checkUnnamed is checkItemKind for an object that leaves its kind to the list
// it is in, as those of kinds that are built into Kubernetes do. The list may
// name it behind its items, since members of JSON have no order. Such items
// stay out of sight until the page's end, where checkListKind accepts or
// refuses them all.
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

// checkListKind is checkItemKind for a list as a whole. A list of a kind that
// says nothing of its items, or that the definition of the resource may have
// named differently, is accepted only if each of its items names its kind, and
// there are some. An empty one takes nothing away unless lists of that kind
// were seen to hold such items.
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
