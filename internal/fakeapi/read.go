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

func (x *exchange) get() error {
	x.mu.Lock()
	v := x.table.objects[objectKey{x.req.Namespace, x.req.Name}]
	x.mu.Unlock()

	if v == nil && x.table.kind.defines() {
		v = x.definition(x.req.Name)
	}
	if v == nil {
		return apierrors.NewNotFound(x.req.GroupResource(), x.req.Name)
	}
	writeRaw(x.w, http.StatusOK, x.form().of(v))
	return nil
}

// selection is the set of objects that a list or watch selects.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func (x *exchange) selection() (selection, error) {
	s := selection{namespace: x.req.Namespace}
	var err error
	if s.labels, err = labels.Parse(x.q.Get("labelSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	if s.fields, err = fields.ParseSelector(x.q.Get("fieldSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	for _, f := range s.fields.Requirements() {
		if f.Field != "metadata.name" && f.Field != "metadata.namespace" &&
			!slices.Contains(x.table.kind.fields, f.Field) {
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
	return base64.RawURLEncoding.EncodeToString(marshal(t))
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
func (x *exchange) list() error {
	which, err := x.selection()
	if err != nil {
		return err
	}
	objects, rv, after, err := x.moment()
	if err != nil {
		return err
	}
	k := x.table.kind
	if name, one := which.fields.RequiresExactMatch("metadata.name"); one && k.defines() {
		if key := (objectKey{name: name}); objects[key] == nil {
			objects[key] = x.definition(name)
		}
	}
	found := make([]objectKey, 0, len(objects))
	for key, v := range objects {
		if (after == nil || compareKeys(key, *after) > 0) && which.matches(v) {
			found = append(found, key)
		}
	}
	slices.SortFunc(found, compareKeys)
	meta := metav1.ListMeta{ResourceVersion: k.listVersion(rv)}
	if limit, _ := strconv.Atoi(x.q.Get("limit")); limit > 0 && len(found) > limit {
		if which.labels.Empty() && which.fields.Empty() {
			meta.RemainingItemCount = new(int64(len(found) - limit))
		}
		found = found[:limit]
		last := found[limit-1]
		meta.Continue = token{RV: rv, Namespace: last.namespace, Name: last.name}.String()
	}

	f := x.form()
	kind, apiVersion := k.Kind+"List", f.apiVersion
	if f.partial {
		kind, apiVersion = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	items := make([]json.RawMessage, 0, len(found))
	for _, key := range found {
		items = append(items, f.of(objects[key]))
	}
	writeJSON(x.w, http.StatusOK, map[string]any{
		"kind":       kind,
		"apiVersion": apiVersion,
		"metadata":   meta,
		"items":      items,
	})
	return nil
}

// moment returns the objects that a list shows, their resourceVersion, and the
// key after which the page begins.
func (x *exchange) moment() (objects map[objectKey]*version, rv int64, after *objectKey, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()

	t := x.table
	if text := x.q.Get("continue"); text != "" {
		var next token
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(raw, &next) != nil {
			return nil, 0, nil, apierrors.NewBadRequest("continue key is not valid")
		}
		if next.RV == anyVersion {
			return maps.Clone(t.objects), x.rv, &objectKey{next.Namespace, next.Name}, nil
		}
		if next.RV < x.expired || next.RV > x.rv {
			return nil, 0, nil, tokenExpired(next)
		}
		return t.at(next.RV), next.RV, &objectKey{next.Namespace, next.Name}, nil
	}

	asked, err := versionOf(x.q)
	if err != nil {
		return nil, 0, nil, err
	}

	switch {
	case asked > x.rv:
		return nil, 0, nil, tooLarge(asked, x.rv)
	case x.q.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact) && asked > 0:
		if asked < x.expired {
			return nil, 0, nil, apierrors.NewResourceExpired(expiredMessage(asked, x.expired))
		}
		return t.at(asked), asked, nil, nil
	}

	return maps.Clone(t.objects), x.rv, nil, nil
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
