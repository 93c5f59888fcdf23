// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetserver

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// list serves a LIST, or a page of one.
func (t *table) list(w http.ResponseWriter, r *http.Request, which selection) error {
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if q.Get("limit") != "" && (err != nil || limit < 0) {
		return apierrors.NewBadRequest("invalid limit")
	}
	all, rv, err := t.moment(q)
	if err != nil {
		return err
	}
	found, err := t.selected(which, all)
	if err != nil {
		return err
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatInt(rv, 10)}
	page, err := t.page(q, &meta, found, limit, rv)
	if err != nil {
		return err
	}
	t.cluster.fleet.counts.objects.Add(int64(len(page)))

	return representationOf(r, t).many(w, r, meta, page)
}

// moment returns all objects and the version at which a list shows them.
func (t *table) moment(q url.Values) ([]change, int64, error) {
	asked, given, err := versionOf(q)
	if err != nil {
		return nil, 0, err
	}
	c := t.cluster
	c.mu.Lock()
	defer c.mu.Unlock()

	if given && asked > c.rv {
		return nil, 0, tooLarge(asked, c.rv)
	}
	if q.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact) && asked != c.rv {
		return nil, 0, apierrors.NewBadRequest("past versions are not served")
	}
	return t.all(), c.rv, nil
}

// page returns the page that the request wants. Its continuation is a position
// in a state that is not kept: it expires at the next change of the kind.
func (t *table) page(
	q url.Values, meta *metav1.ListMeta, found []client.Object, limit int, rv int64,
) ([]client.Object, error) {
	from, total := 0, len(found)
	if token := q.Get("continue"); token != "" {
		var at int64
		text, err := base64.RawURLEncoding.DecodeString(token)
		if err == nil {
			_, err = fmt.Sscanf(string(text), "%d/%d", &at, &from)
		}
		if err != nil || from < 0 || from > total {
			return nil, apierrors.NewBadRequest("continue key is not valid")
		}
		c := t.cluster
		c.mu.Lock()
		expired := at < c.oldest || len(t.after(at)) > 0
		c.mu.Unlock()
		if expired {
			return nil, apierrors.NewResourceExpired(
				"The provided continue parameter is too old to display a consistent list result.")
		}
		meta.ResourceVersion = strconv.FormatInt(at, 10)
		rv = at
	}

	page := found[from:]
	if limit > 0 && len(page) > limit {
		page = page[:limit]
		to := from + limit
		meta.Continue = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d/%d", rv, to))
		meta.RemainingItemCount = new(int64(total - to))
	}

	return page, nil
}

// tooLarge is the response to a request for a version that the server has not
// reached.
func tooLarge(asked, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

// timeoutOf returns after how long the server ends a watch.
func timeoutOf(q url.Values) time.Duration {
	seconds, err := strconv.Atoi(strings.TrimSpace(q.Get("timeoutSeconds")))
	if err != nil || seconds <= 0 {
		return 30 * time.Minute // as in kube-apiserver, which makes it up to twice that at random
	}
	return time.Duration(seconds) * time.Second
}
