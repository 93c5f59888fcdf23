// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	corePath = "/api"
	apisPath = "/apis"
	// legacyParallel is how many group versions of an old server are requested
	// at once.
	legacyParallel = 8
)

// part is a mapper's knowledge of one discovery path.
type part struct {
	entry *entry
	etag  string // validates entry with this server; fleet-wide only if the table has it, too
	at    time.Time
	// failed reports that the last request for the path failed.
	failed bool
}

// answer is a response that has been read.
type answer struct {
	status      int
	contentType string
	etag        string
	body        []byte
}

// get requests path. Status 404 becomes errNoDocument, and any other status
// than 200 and 304 an API status error without the server's words.
func (m *Mapper) get(ctx context.Context, path, etag string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.base+path, nil)
	if err != nil {
		return answer{}, fmt.Errorf("discover %s: %w", path, err)
	}
	req.Header.Set("Accept", accept)
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	resp, err := m.do(req)
	if err != nil {
		return answer{}, fmt.Errorf("discover %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()

	switch {
	case resp.StatusCode == http.StatusNotModified && etag != "":
		return answer{status: resp.StatusCode}, nil
	case resp.StatusCode == http.StatusNotFound:
		return answer{}, fmt.Errorf("discover %s: %w", path, errNoDocument)
	case resp.StatusCode != http.StatusOK:
		return answer{}, fmt.Errorf("discover %s: %w", path,
			apierrors.NewGenericServerResponse(resp.StatusCode, "get", schema.GroupResource{}, "", "", 0, true))
	}

	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return answer{}, fmt.Errorf("discover %s: %w", path, err)
	}
	if len(body) > maxBody {
		return answer{}, fmt.Errorf("discover %s: %w", path, ErrTooLarge)
	}
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("ETag"), body}, nil
}

// errNoDocument indicates that a server has no such document. It is not one of
// apimachinery's errors, because a caller that reads an object would mistake
// that for the object's absence.
var errNoDocument = errors.New("status 404 not found")

// fetch brings one part up to date. The returned part holds a reference to its
// entry. If fetch fails, it returns the old part, which may be empty.
func (m *Mapper) fetch(ctx context.Context, path string, old part) (part, error) {
	p, err := m.fetchPart(ctx, path, old)
	if err != nil {
		if old.entry != nil {
			old.entry = m.table.again(old.entry)
		}
		old.failed = true
		return old, err
	}

	p.at = time.Now()
	return p, nil
}

func (m *Mapper) fetchPart(ctx context.Context, path string, old part) (part, error) {
	if old.entry == nil {
		hint, etag := m.table.common(path)
		defer m.table.drop(hint)
		old = part{entry: hint, etag: etag}
	}
	a, err := m.get(ctx, path, old.etag)
	if path == corePath && errors.Is(err, errNoDocument) { // an extension server on its own has no core group
		return part{entry: m.table.add(path, &document{}, "")}, nil
	}
	if err != nil {
		return part{}, err
	}
	if a.status == http.StatusNotModified {
		return part{entry: m.table.again(old.entry), etag: old.etag}, nil
	}
	if len(a.etag) > maxName {
		a.etag = ""
	}
	if !isAggregated(a.contentType) {
		doc, err := m.legacy(ctx, path, a.body)
		if err != nil {
			return part{}, err
		}
		return part{entry: m.table.add(path, doc, "")}, nil // the ETag, if any, covers only the list
	}

	verified := ""
	if verifies(a.etag, a.body) {
		verified = a.etag
		if e := m.table.known(path, verified); e != nil {
			return part{entry: e, etag: verified}, nil
		}
	}

	doc, err := parseAggregated(a.body)
	if err != nil {
		return part{}, fmt.Errorf("discover %s: %w", path, err)
	}
	return part{entry: m.table.add(path, doc, verified), etag: a.etag}, nil
}

// legacy reads the older form of discovery, with one document per group
// version.
func (m *Mapper) legacy(ctx context.Context, path string, body []byte) (*document, error) {
	versions, err := legacyVersions(path, body)
	if err != nil {
		return nil, fmt.Errorf("discover %s: %w", path, err)
	}
	lists := make([]*metav1.APIResourceList, len(versions))
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(legacyParallel)
	var resources atomic.Int64
	for i, gv := range versions {
		work.Go(func() error {
			list, err := m.legacyList(ctx, path+"/"+gv.String())
			if list != nil && resources.Add(int64(len(list.APIResources))) > maxResources {
				return fmt.Errorf("discover %s: %w: more than %d resources", path, ErrTooLarge, maxResources)
			}
			lists[i] = list
			return err
		})
	}

	if err := work.Wait(); err != nil {
		return nil, err
	}
	return legacyDocument(versions, lists)
}

// legacyList reads the resources of one group version. It returns nil if the
// extension server behind it cannot be reached.
func (m *Mapper) legacyList(ctx context.Context, path string) (*metav1.APIResourceList, error) {
	a, err := m.get(ctx, path, "")
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		if code := status.Status().Code; code == http.StatusNotFound || code == http.StatusTooManyRequests ||
			code >= http.StatusInternalServerError {
			return nil, nil // the extension server is down or busy, or was just removed
		}
	}
	if err != nil {
		return nil, err
	}
	list := &metav1.APIResourceList{}
	if err := decode(a.body, list); err != nil {
		return nil, fmt.Errorf("discover %s: %w", path, err)
	} else if list.Kind != "APIResourceList" {
		return nil, fmt.Errorf("discover %s: %w", path, ErrMalformed)
	}

	return list, nil
}
