// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// apiPool returns a pool on an in-memory API server, whose responses spoil may
// replace, and a client whose responses are not spoiled.
func apiPool(t *testing.T, spoil func(*http.Request) *http.Response) (*informerpool.Pool, *fakeapi.Server,
	func(method, path, body string)) {
	t.Helper()
	server := fakeapi.New(fakeapi.Options{Identity: "one"})
	client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if resp := spoil(r); resp != nil {
			resp.Request = r
			return resp, nil
		}
		return server.Transport().RoundTrip(r)
	})}
	p, err := informerpool.New(informerpool.Options{
		Source: informerpool.FromREST(func(context.Context, types.NamespacedName) (informerpool.Endpoint, error) {
			return informerpool.Endpoint{Client: client, URL: "http://fake"}, nil
		}),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	do := func(method, path, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(context.Background(), method, "http://fake"+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		resp, err := server.Transport().RoundTrip(r)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Less(t, resp.StatusCode, 300, "%s", text)
	}
	return p, server, do
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func canned(code int, contentType, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {contentType}},
		Body:  io.NopCloser(bytes.NewReader([]byte(body))),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

const gizmoCRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
	"metadata":{"name":"gizmos.example.com"},
	"spec":{"group":"example.com","scope":"Namespaced",
	"names":{"plural":"gizmos","singular":"gizmo","kind":"Gizmo","listKind":"GizmoList"},
	"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`

var gizmos = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gizmos"}

// TestHazardIngressWithoutRoutes: an ingress answers every request with an HTML
// 404 while it loads its routes.
func TestHazardIngressWithoutRoutes(t *testing.T) {
	for name, body := range map[string]string{
		"html": "<html>not found", "plain": "404 page not found", "json": `{"message":"no Route matched"}`,
		"status": `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`,
	} {
		for _, down := range []time.Duration{2500 * time.Millisecond, 5 * time.Minute} {
			t.Run(name+" "+down.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var loading atomic.Bool
					p, server, do := apiPool(t, func(*http.Request) *http.Response {
						if loading.Load() {
							return canned(404, map[bool]string{true: "application/json",
								false: "text/html"}[body[0] == '{'], body)
						}
						return nil
					})
					do("POST", "/api/v1/namespaces/default/configmaps",
						`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}`)
					l := pooltest.AcquireSynced(t, p,
						informerpool.Key{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}})
					r := pooltest.Record(t, p, l)
					pooltest.After(time.Minute)
					r.Take()
					loading.Store(true)
					server.Cut(func(*fakeapi.Request) bool { return true })
					pooltest.After(down)
					require.Empty(t, r.Take(), "nothing is proven")
					require.Len(t, pooltest.Contents(t, l), 1)
					require.Error(t, l.Trust(time.Minute))
					require.Equal(t, informerpool.StateDegraded, l.Status().State)
					loading.Store(false)
					pooltest.After(time.Minute)
					require.Empty(t, r.Take())
					require.NoError(t, l.Trust(0))
				})
			})
		}
	}
}

// TestDeletedDefinitionDeletesItsObjectsOnProof: by the server's own discovery,
// within a bound.
func TestDeletedDefinitionDeletesItsObjectsOnProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, do := apiPool(t, func(*http.Request) *http.Response { return nil })
		do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", gizmoCRD)
		do("POST", "/apis/example.com/v1/namespaces/default/gizmos",
			`{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":{"name":"a","namespace":"default"}}`)
		l := pooltest.AcquireSynced(t, p, informerpool.Key{Resource: gizmos})
		r := pooltest.Record(t, p, l)
		synctest.Wait()
		r.Take()
		do("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gizmos.example.com", "")
		pooltest.After(20 * time.Second)
		require.Empty(t, r.State())
		require.Empty(t, pooltest.Contents(t, l))
		require.True(t, apierrors.IsNotFound(l.Trust(time.Hour)), "%v", l.Trust(time.Hour))
		require.True(t, apierrors.IsNotFound(l.WaitForSync(context.Background())))
		do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", gizmoCRD)
		do("POST", "/apis/example.com/v1/namespaces/default/gizmos",
			`{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":{"name":"b","namespace":"default"}}`)
		pooltest.After(time.Minute)
		require.Len(t, r.State(), 1)
		require.NoError(t, l.WaitForSync(context.Background()))
		r.RequireSound(t)
	})
}

// TestHazardDefinitionGoesBeforeAWatchIsAccepted: a gateway hides the resource,
// then only its watches. The informer has listed what is there, and its
// definition is deleted before a watch was accepted.
func TestHazardDefinitionGoesBeforeAWatchIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hidden, unwatched atomic.Bool
		p, server, do := apiPool(t, func(r *http.Request) *http.Response {
			watch := r.URL.Query().Get("watch") != ""
			if watch && r.URL.Query().Get("sendInitialEvents") != "" {
				return canned(422, "application/json",
					`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
			}
			if strings.Contains(r.URL.Path, "/gizmos") && (hidden.Load() || watch && unwatched.Load()) {
				return canned(404, "text/plain", "404 page not found")
			}
			return nil
		})
		do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", gizmoCRD)
		do("POST", "/apis/example.com/v1/namespaces/default/gizmos",
			`{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":{"name":"a","namespace":"default"}}`)
		l := pooltest.AcquireSynced(t, p, informerpool.Key{Resource: gizmos})
		r := pooltest.Record(t, p, l)
		hidden.Store(true)
		server.Cut(func(*fakeapi.Request) bool { return true })
		pooltest.After(time.Minute)
		unwatched.Store(true)
		hidden.Store(false)
		pooltest.After(2 * time.Minute)
		require.Len(t, r.State(), 1)

		do("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gizmos.example.com", "")
		unwatched.Store(false)
		pooltest.After(3 * time.Minute)
		require.Empty(t, r.State(), "%v", l.Status().LastError)
		r.RequireSound(t)
	})
}

// discovering is a model server whose lists fail with 404, and whose discovery
// and definition are set by the test.
type discovering struct {
	*pooltest.Server
	answer     func() (informerpool.Discovery, error)
	definition func() (io.ReadCloser, error) // nil: it was deleted after the first answer
	asked      *atomic.Int32                 // how often it was asked for
}

func discover(s *pooltest.Server, answer func() (informerpool.Discovery, error)) discovering {
	return discovering{Server: s, answer: answer, asked: &atomic.Int32{}}
}

func (d discovering) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Key.Resource.Resource != "customresourcedefinitions" {
		return d.Server.List(ctx, r)
	}
	switch n := d.asked.Add(1); {
	case d.definition != nil:
		return d.definition()
	case n == 1:
		return pooltest.Definitions("one"), nil
	default:
		return pooltest.Definitions(""), nil
	}
}

func (d discovering) Discover(context.Context, informerpool.Request) (informerpool.Discovery, error) {
	return d.answer()
}

// TestHazardNotFoundIsNoProof: a 404 alone proves nothing about the objects.
func TestHazardNotFoundIsNoProof(t *testing.T) {
	asked := 0
	for name, answer := range map[string]func() (informerpool.Discovery, error){
		"version is unserved": func() (informerpool.Discovery, error) {
			return informerpool.Discovery{Versions: []string{"v2"}}, nil
		},
		"served": func() (informerpool.Discovery, error) {
			return informerpool.Discovery{Served: true}, nil
		},
		"discovery is forbidden": func() (informerpool.Discovery, error) {
			return informerpool.Discovery{}, errors.New("forbidden")
		},
		"servers take turns": func() (informerpool.Discovery, error) {
			asked++
			return informerpool.Discovery{Served: asked%3 == 0}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
				p, err := informerpool.New(informerpool.Options{Source: discover(s, answer)})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				s.Put("ns", "a", 1)
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				synctest.Wait()
				r.Take()
				s.FailWith(apierrors.NewNotFound(pooltest.Widgets.GroupResource(), ""))
				s.Cut(io.EOF)
				pooltest.After(10 * time.Minute)
				require.Empty(t, r.Take())
				require.Len(t, pooltest.Contents(t, l), 1)
				require.True(t, apierrors.IsNotFound(l.Trust(time.Hour)))
				require.Equal(t, name == "version is unserved",
					errors.Is(l.Trust(time.Hour), informerpool.ErrOtherVersion))
				require.Less(t, s.Count("stream"), 120, "no busy loop")
			})
		})
	}
}

// nowhere is the answer of discovery that a resource is not served.
func nowhere() (informerpool.Discovery, error) { return informerpool.Discovery{}, nil }

// TestHazardAbsentAPIIsNotAnAbsentDefinition: discovery lacks the resource, and
// yet its objects may exist, unless the definition is known to be gone that
// defined it while it was served.
func TestHazardAbsentAPIIsNotAnAbsentDefinition(t *testing.T) {
	later := func(first, then func() (io.ReadCloser, error)) func() (io.ReadCloser, error) {
		asked := 0
		return func() (io.ReadCloser, error) {
			if asked++; asked == 1 {
				return first()
			}
			return then()
		}
	}
	list := func(uid string) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return pooltest.Definitions(uid), nil }
	}
	text := func(text string) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	}
	fails := func(err error) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return nil, err }
	}
	of := schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	forbidden := apierrors.NewForbidden(of, "", errors.New("no"))
	for name, row := range map[string]struct {
		definition func() (io.ReadCloser, error)
		says       string
		deletes    bool
	}{
		"gone":        {definition: later(list("one"), list("")), deletes: true},
		"another one": {definition: later(list("one"), list("two")), deletes: true},
		"gone, asked again": {
			definition: later(fails(io.ErrUnexpectedEOF), later(list("one"), list(""))), deletes: true,
		},
		"there never was one":   {definition: list(""), says: "no CustomResourceDefinition"},
		"it exists":             {definition: list("one"), says: "its CustomResourceDefinition exists"},
		"never allowed":         {definition: fails(forbidden), says: "forbidden"},
		"not allowed any more":  {definition: later(list("one"), fails(forbidden)), says: "forbidden"},
		"never answered":        {definition: fails(io.ErrUnexpectedEOF), says: "unexpected EOF"},
		"not answered any more": {definition: later(list("one"), fails(io.ErrUnexpectedEOF)), says: "unexpected EOF"},
		"answered by a gateway": {definition: later(list("one"), text(`{}`)), says: "not a list"},
		"404 of the definitions": {
			definition: later(list("one"), fails(apierrors.NewNotFound(of, ""))), says: "not known",
		},
		"another list": {
			definition: later(list("one"), text(`{"kind":"WidgetList","metadata":{"resourceVersion":"1"},"items":[]}`)),
			says:       "not a list",
		},
		"other definitions": {
			definition: later(list("one"), text(`{"kind":"PartialObjectMetadataList","metadata":`+
				`{"resourceVersion":"1"},"items":[{"metadata":{"name":"others.example.com","uid":"x"}}]}`)),
			says: "not a list",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
				book := &fleettest.Logbook{}
				source := discover(s, nowhere)
				source.definition = row.definition
				p, err := informerpool.New(informerpool.Options{Source: source, Logger: book.Logger()})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(context.Background())) }()
				s.Put("ns", "a", 1)
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				narrow := pooltest.AcquireSynced(t, p, pooltest.In("ns"))
				r, other := pooltest.Record(t, p, l), pooltest.Record(t, p, narrow)
				pooltest.After(10 * time.Minute)
				r.Take()
				other.Take()
				asked := source.asked.Load()
				s.FailWith(apierrors.NewNotFound(pooltest.Widgets.GroupResource(), ""))
				s.Cut(io.EOF)
				pooltest.After(10 * time.Minute)
				require.Equal(t, row.deletes, len(r.Take()) == 1)
				require.Equal(t, row.deletes, len(other.Take()) == 1)
				require.Equal(t, row.deletes, len(pooltest.Contents(t, l)) == 0)
				require.True(t, apierrors.IsNotFound(l.Trust(time.Hour)), "%v", l.Trust(time.Hour))
				require.False(t, apierrors.IsForbidden(l.Trust(time.Hour)), "of the definitions, not of the objects")
				require.Contains(t, l.Status().LastError.Error(), row.says)
				require.Equal(t, name == "never allowed", book.Count("may not be listed") == 1)
				require.Less(t, s.Count("stream"), 240, "no busy loop")
				require.Less(t, source.asked.Load()-asked, int32(120), "no busy loop")
				s.Heal()
				pooltest.After(2 * time.Minute)
				require.NoError(t, l.Trust(0))
				require.Equal(t, row.deletes, len(r.Take()) == 1, "the uids are the same")
				require.Len(t, other.State(), 1)
				r.RequireSound(t)
			})
		})
	}
}

// TestAPIServiceIsDeletedAndMadeAgain: the objects of an aggregated API are
// behind it, however long it is not served.
func TestAPIServiceIsDeletedAndMadeAgain(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 30 * time.Second, time.Hour} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, server, do := apiPool(t, func(*http.Request) *http.Response { return nil })
				kind := fakeapi.Kind{Group: gizmos.Group, Kind: "Gizmo", Aggregated: true}
				server.Register(kind)
				do("POST", "/apis/example.com/v1/namespaces/default/gizmos",
					`{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":{"name":"a","namespace":"default"}}`)
				l := pooltest.AcquireSynced(t, p, informerpool.Key{Resource: gizmos})
				r := pooltest.Record(t, p, l)
				for range 3 {
					pooltest.After(time.Minute)
					r.Take()
					server.Unregister(schema.GroupKind{Group: gizmos.Group, Kind: "Gizmo"})
					pooltest.After(away)
					require.Empty(t, r.Take())
					require.Error(t, l.Trust(time.Hour))
					require.Equal(t, informerpool.StateDegraded, l.Status().State)
					server.Register(kind)
					pooltest.After(time.Minute)
					require.Empty(t, r.Take(), "the uids are the same")
					require.NoError(t, l.Trust(0))
				}
				require.Len(t, pooltest.Contents(t, l), 1)

				// The objects of a definition that takes its place go with it.
				server.Unregister(schema.GroupKind{Group: gizmos.Group, Kind: "Gizmo"})
				pooltest.After(time.Minute)
				do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", gizmoCRD)
				do("POST", "/apis/example.com/v1/namespaces/default/gizmos",
					`{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":{"name":"b","namespace":"default"}}`)
				pooltest.After(2 * time.Minute)
				require.Len(t, r.State(), 1)
				server.Cut(func(*fakeapi.Request) bool { return true })
				do("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gizmos.example.com", "")
				pooltest.After(time.Minute)
				require.Empty(t, r.State())
				r.RequireSound(t)
			})
		})
	}
}

// TestDefinitionIsAskedForOnce for all informers of a resource, also when they
// start together, and not for what Kubernetes itself serves.
func TestDefinitionIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		p, server, do := apiPool(t, func(r *http.Request) *http.Response {
			if strings.HasSuffix(r.URL.Path, "/customresourcedefinitions") {
				asked.Add(1)
			}
			return nil
		})
		do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", gizmoCRD)
		for _, namespace := range []string{"", "a", "b", "c"} {
			pooltest.Acquire(t, p, informerpool.Key{Resource: gizmos, Namespace: namespace})
			for _, resource := range []schema.GroupVersionResource{
				{Version: "v1", Resource: "secrets"}, {Group: "apps", Version: "v1", Resource: "deployments"},
				{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
			} {
				pooltest.Acquire(t, p, informerpool.Key{Resource: resource, Namespace: namespace})
			}
		}
		pooltest.After(time.Second)
		require.EqualValues(t, 1, asked.Load())
		for range 10 {
			pooltest.After(time.Minute)
			server.Cut(func(*fakeapi.Request) bool { return true })
		}
		pooltest.After(3 * time.Hour)
		require.EqualValues(t, 1, asked.Load())
	})
}

// TestHazardSkewedServers: the older of two servers does not know the resource,
// and answers for some seconds.
func TestHazardSkewedServers(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
		p, err := informerpool.New(informerpool.Options{Source: discover(s, nowhere)})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.Record(t, p, l)
		synctest.Wait()
		r.Take()
		for range 5 {
			s.FailWith(apierrors.NewNotFound(pooltest.Widgets.GroupResource(), ""))
			s.Cut(io.ErrUnexpectedEOF)
			pooltest.After(9 * time.Second)
			s.Heal()
			pooltest.After(20 * time.Second)
			require.Equal(t, informerpool.StateSynced, l.Status().State)
		}
		require.Empty(t, r.Take())
	})
}

// TestDiscoveryForms: the forms that API servers send are understood, and no
// others.
func TestDiscoveryForms(t *testing.T) {
	const (
		list   = "APIGroupDiscoveryList"
		groups = `{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"version":"v1"}]},` +
			`{"name":"example.com","versions":[{"version":"v1"},{"version":"v2"}]}]}`
		version = `{"kind":"APIResourceList","groupVersion":"example.com/v2",` +
			`"resources":[{"name":"gizmos","namespaced":true}]}`
	)
	group := func(version, more string) map[string]string {
		return map[string]string{"/apis": `{"kind":"` + list + `","items":[{"metadata":{"name":"apps"}},` +
			`{"metadata":{"name":"example.com"},"versions":[{"version":"` + version + `",` + more + `}]}]}`}
	}
	namespaced := informerpool.Key{Resource: gizmos, Namespace: "ns"}
	for name, c := range map[string]struct {
		key    informerpool.Key
		answer map[string]string
		want   informerpool.Discovery
		fails  bool
	}{
		"served": {answer: group("v1", `"resources":[{"resource":"gizmos"}]`),
			want: informerpool.Discovery{Served: true}},
		"other version": {answer: group("v2", `"resources":[{"resource":"gizmos"}]`),
			want: informerpool.Discovery{Versions: []string{"v2"}}},
		"other kind": {answer: group("v1", `"resources":[{"resource":"gadgets"}]`)},
		"no group":   {answer: map[string]string{"/apis": `{"kind":"` + list + `","items":[]}`}},
		"other scope": {key: namespaced,
			answer: group("v1", `"resources":[{"resource":"gizmos","scope":"Cluster"}]`)},
		"same scope": {key: namespaced,
			answer: group("v1", `"resources":[{"resource":"gizmos","scope":"Namespaced"}]`),
			want:   informerpool.Discovery{Served: true}},
		"stale": {answer: group("v1", `"freshness":"Stale"`), fails: true},
		"older server": {answer: map[string]string{
			"/apis": groups, "/apis/example.com/v2": version,
			"/apis/example.com/v1": `{"kind":"APIResourceList","resources":[]}`,
		}, want: informerpool.Discovery{Versions: []string{"v2"}}},
		"older server, no group": {answer: map[string]string{"/apis": `{"kind":"APIGroupList","groups":[]}`}},
		"older server, half a list": {answer: map[string]string{"/apis": groups, "/apis/example.com/v1": version},
			fails: true},
		"core": {key: informerpool.Key{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}, answer: map[string]string{
			"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
			"/api/v1": `{"kind":"APIResourceList","resources":[{"name":"configmaps"}]}`,
		}, want: informerpool.Discovery{Served: true}},
		"nothing":       {fails: true},
		"something":     {answer: map[string]string{"/apis": `{"groups":[]}`}, fails: true},
		"no object":     {answer: map[string]string{"/apis": `[]`}, fails: true},
		"another group": {answer: map[string]string{"/apis": `{"kind":"Status"}`}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			key := c.key
			if key == (informerpool.Key{}) {
				key.Resource = gizmos
			}
			source := informerpool.FromREST(func(context.Context, types.NamespacedName) (informerpool.Endpoint, error) {
				return informerpool.Endpoint{URL: "http://x", Client: &http.Client{Transport: roundTrip(func(
					r *http.Request) (*http.Response, error) {
					if body, ok := c.answer[r.URL.Path]; ok {
						return canned(200, "application/json", body), nil
					}
					return canned(404, "text/plain", "404 page not found"), nil
				})}}, nil
			})
			got, err := source.(informerpool.Discoverer).Discover(t.Context(), informerpool.Request{Key: key})
			require.Equal(t, c.fails, err != nil, "%v", err)
			require.Equal(t, c.want, got)
		})
	}
}
