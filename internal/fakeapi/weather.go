// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// RefuseStreams makes the server refuse streamed lists with code, either 422,
// as servers do whose feature gate is off, or 400. A code of 0 makes the server
// serve them. Every watch ends and cannot resume, as after the restart that
// such a change requires.
func (s *Server) RefuseStreams(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.noStreams = code
	s.expired = s.rv
	s.cut(func(*Request) bool { return true })
}

// refuseStream returns the error for a streamed list, or nil if it is served.
func (x *exchange) refuseStream() error {
	x.mu.Lock()
	code := x.noStreams
	x.mu.Unlock()

	switch code {
	case 0:
		return nil
	case http.StatusUnprocessableEntity:
		return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", field.ErrorList{
			field.Forbidden(field.NewPath("sendInitialEvents"),
				"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
		})
	}

	return apierrors.NewGenericServerResponse(code, "watch", schema.GroupResource{}, "",
		"sendInitialEvents is not supported", 0, false)
}

// Lose stops watches of matching kinds from delivering later changes, or ends
// that. The watches still deliver bookmarks and everything else.
func (s *Server) Lose(match func(*Kind) bool, lose bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		if match(t.kind) {
			t.deaf = lose
		}
	}
}

// Unregister removes a kind as the deletion of its definition does: its objects
// are deleted, and its watches end. If it is Aggregated, that is the deletion of
// its APIService: the objects are served again once it is registered again.
func (s *Server) Unregister(gk schema.GroupKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch t := s.tableOf(gk); {
	case t == nil || t.kind.native:
	case t.kind.Aggregated:
		s.away[t.kind.GroupResource().String()] = t
		s.hide(t)
	default:
		s.endKind(t)
	}
}

func (s *store) tableOf(gk schema.GroupKind) *table {
	for _, t := range s.tables {
		if t.kind.Group == gk.Group && t.kind.Kind == gk.Kind {
			return t
		}
	}
	return nil
}

// endUnserved ends the watches of a kind in versions in which it is no longer
// served.
func (s *store) endUnserved(t *table) {
	for _, st := range s.streams {
		if st.table == t && !t.kind.serves(st.req.Version) {
			st.cancel(errCut)
		}
	}
}

// Rewrite changes an object without a new version and without an event. In real
// clusters that may happen through a default that is added to a definition, a
// conversion, or an upgrade of the server.
func (s *Server) Rewrite(gk schema.GroupKind, namespace, name string, change func(obj map[string]any)) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	key := objectKey{namespace, name}
	t := s.tableOf(gk)
	if t == nil || t.objects[key] == nil {
		return fmt.Errorf("there is no %s %s/%s", gk, namespace, name)
	}
	u := t.objects[key].copy()
	change(u.Object)
	raw, err := json.Marshal(u.Object)
	if err == nil {
		t.objects[key] = &version{rv: t.objects[key].rv, obj: u.Object, raw: raw}
	}

	return err
}

// Delete removes an object regardless of its finalizers.
func (s *Server) Delete(gk schema.GroupKind, namespace, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	key := objectKey{namespace, name}
	t := s.tableOf(gk)
	if t == nil || t.objects[key] == nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, name)
	}
	s.remove(t, key, t.objects[key].copy().Object)

	return nil
}

// Objects returns the stored objects of a kind, which the caller must not
// modify, and whether the kind is served in that version. The objects do not
// depend on the version.
func (s *Server) Objects(gvk schema.GroupVersionKind) (objects []*unstructured.Unstructured, served bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	t := s.tableOf(gvk.GroupKind())
	if t == nil {
		return nil, false
	}
	for _, v := range t.objects {
		objects = append(objects, v.meta())
	}

	return objects, t.kind.serves(gvk.Version)
}

// HTML returns the response of an ingress that has no route to the server: the
// status code with a page for people.
func HTML(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, "<html><head><title>%d %s</title></head><body>nginx</body></html>\n", code,
			http.StatusText(code))
	}
}

// Hang does not respond until the client gives up.
func Hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// TooMany returns the error of a server that has too many requests in flight.
func TooMany() error {
	err := apierrors.NewTooManyRequests("too many requests, please try again later", 1)
	err.ErrStatus.Reason = metav1.StatusReasonTooManyRequests
	return err
}
