// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

func (s *Server) get(w http.ResponseWriter, r *http.Request, req *Request, t *table) {
	s.mu.Lock()
	v := t.objects[objectKey{req.Namespace, req.Name}]
	s.mu.Unlock()

	if v == nil && t.kind.defines() {
		v = s.definition(req.Name)
	}
	if v == nil {
		writeError(w, apierrors.NewNotFound(req.GroupResource(), req.Name))
		return
	}
	writeRaw(w, http.StatusOK, formOf(r, req, t.kind).of(v))
}

// selection is the set of objects that a list or watch selects.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func selectionOf(req *Request, q url.Values, k *Kind) (selection, error) {
	s := selection{namespace: req.Namespace}
	var err error
	if s.labels, err = labels.Parse(q.Get("labelSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	if s.fields, err = fields.ParseSelector(q.Get("fieldSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	for _, f := range s.fields.Requirements() {
		if f.Field != "metadata.name" && f.Field != "metadata.namespace" && !slices.Contains(k.fields, f.Field) {
			return s, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", f.Field))
		}
	}

	return s, nil
}

func (s selection) matches(v *version) bool {
	if v == nil {
		return false
	}
	m := v.meta()
	if (s.namespace != "" && m.GetNamespace() != s.namespace) || !s.labels.Matches(labels.Set(m.GetLabels())) {
		return false
	}

	for _, f := range s.fields.Requirements() {
		value, _, _ := unstructured.NestedFieldNoCopy(v.obj, strings.Split(f.Field, ".")...)
		text := ""
		if value != nil {
			text = fmt.Sprint(value)
		}
		if equal := text == f.Value; equal == (f.Operator == "!=") {
			return false
		}
	}

	return true
}

// token identifies where the next page of a list begins.
type token struct {
	RV        int64  `json:"rv"`
	Namespace string `json:"ns,omitempty"`
	Name      string `json:"name"`
}

// anyVersion is the version in a token that continues a list whose version is
// no longer available: the rest of the list shows the present state.
const anyVersion = -1

// String returns the token in the form that clients receive.
func (t token) String() string {
	raw, _ := json.Marshal(t)
	return base64.RawURLEncoding.EncodeToString(raw)
}

// tokenExpired returns the error for a token whose version is no longer
// available. The error contains a token that continues the list anyway.
func tokenExpired(t token) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without the continue parameter, or use the " +
		"continue token in this response to retrieve the remainder of the results.")
	t.RV = anyVersion
	err.ErrStatus.Continue = t.String()
	return err
}

// list responds with one page of a list, in which all pages show the same
// moment.
func (s *Server) list(w http.ResponseWriter, r *http.Request, req *Request, t *table) {
	q := r.URL.Query()
	which, err := selectionOf(req, q, t.kind)
	if err != nil {
		writeError(w, err)
		return
	}
	objects, rv, after, err := s.moment(t, q)
	if err != nil {
		writeError(w, err)
		return
	}
	if name, one := which.fields.RequiresExactMatch("metadata.name"); one && t.kind.defines() {
		if key := (objectKey{name: name}); objects[key] == nil {
			objects[key] = s.definition(name)
		}
	}
	found := make([]objectKey, 0, len(objects))
	for key, v := range objects {
		if (after == nil || compareKeys(key, *after) > 0) && which.matches(v) {
			found = append(found, key)
		}
	}
	slices.SortFunc(found, compareKeys)
	meta := metav1.ListMeta{ResourceVersion: t.kind.listVersion(rv)}
	if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 && len(found) > limit {
		if which.labels.Empty() && which.fields.Empty() {
			meta.RemainingItemCount = new(int64(len(found) - limit))
		}
		found = found[:limit]
		last := found[limit-1]
		meta.Continue = token{RV: rv, Namespace: last.namespace, Name: last.name}.String()
	}

	f := formOf(r, req, t.kind)
	kind, apiVersion := t.kind.Kind+"List", f.apiVersion
	if f.partial {
		kind, apiVersion = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	items := make([]json.RawMessage, 0, len(found))
	for _, key := range found {
		items = append(items, f.of(objects[key]))
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"kind":       kind,
		"apiVersion": apiVersion,
		"metadata":   meta,
		"items":      items,
	})
}

// moment returns the objects that a list shows, their resourceVersion, and the
// key after which the page begins.
func (s *Server) moment(t *table, q url.Values) (objects map[objectKey]*version, rv int64, after *objectKey,
	err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if text := q.Get("continue"); text != "" {
		var next token
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(raw, &next) != nil {
			return nil, 0, nil, apierrors.NewBadRequest("continue key is not valid")
		}
		if next.RV == anyVersion {
			return maps.Clone(t.objects), s.rv, &objectKey{next.Namespace, next.Name}, nil
		}
		if next.RV < s.expired || next.RV > s.rv {
			return nil, 0, nil, tokenExpired(next)
		}
		return t.at(next.RV), next.RV, &objectKey{next.Namespace, next.Name}, nil
	}

	asked, err := versionOf(q)
	if err != nil {
		return nil, 0, nil, err
	}

	switch {
	case asked > s.rv:
		return nil, 0, nil, tooLarge(asked, s.rv)
	case q.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact) && asked > 0:
		if asked < s.expired {
			return nil, 0, nil, apierrors.NewResourceExpired(expiredMessage(asked, s.expired))
		}
		return t.at(asked), asked, nil, nil
	}

	return maps.Clone(t.objects), s.rv, nil, nil
}

// worded returns a version in the given number of bytes; 0 means a plain
// number.
func worded(rv int64, bytes int) string {
	number := strconv.FormatInt(rv, 10)
	if bytes <= len(number) {
		return number
	}
	return strings.Repeat("v", bytes-len(number)-1) + "." + number
}

// listVersion returns the version of a list or bookmark.
func (k *Kind) listVersion(rv int64) string {
	if k.NoVersions || k.NoListVersions {
		return ""
	}
	return worded(rv, k.VersionBytes)
}

// versionOf returns the requested resourceVersion; 0 means any.
func versionOf(q url.Values) (int64, error) {
	text := q.Get("resourceVersion")
	if text == "" {
		return 0, nil
	}
	number := text[strings.LastIndexByte(text, '.')+1:]
	rv, err := strconv.ParseInt(number, 10, 64)
	if err != nil || rv < 0 {
		return 0, apierrors.NewBadRequest("resourceVersion: Invalid value: " + strconv.Quote(text))
	}
	return rv, nil
}

// tooLarge returns the error for a resourceVersion that is newer than the
// server's.
func tooLarge(asked, is int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, is), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{
		{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}
