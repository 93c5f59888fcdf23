// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

// TestListOfAnEarlierStateEndsNothing: what DeleteAllOf has deleted is still in
// a list of a version that the caller asks for.
func TestListOfAnEarlierStateEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLate(t, patience)
		before := strconv.Itoa(l.api.Version())
		require.NoError(t, l.c.DeleteAllOf(t.Context(), configMap(""), client.InNamespace("default"),
			client.MatchingLabels{"app": "x"}))
		earlier := &corev1.ConfigMapList{}
		require.NoError(t, l.c.List(t.Context(), earlier, client.InNamespace("default"),
			&client.ListOptions{Raw: &metav1.ListOptions{
				ResourceVersion:      before,
				ResourceVersionMatch: metav1.ResourceVersionMatchExact,
			}}))
		require.Equal(t, before, earlier.ResourceVersion)

		shown, cached := states(t, l.c)
		require.NotContains(t, shown, "ConfigMap one")
		require.False(t, cached)
	})
}

// TestHazardRetriedWriteIsRefusedBecauseItWasExecuted: a gateway loses the
// answer to a write and asks for another try, which the API server refuses.
func TestHazardRetriedWriteIsRefusedBecauseItWasExecuted(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(*testing.T, client.Client) error
		isErr func(error) bool
		isGet func(error) bool
	}{
		"create": {
			write: func(t *testing.T, c client.Client) error { return c.Create(t.Context(), configMap("new")) },
			isErr: apierrors.IsAlreadyExists,
			isGet: func(err error) bool { return err == nil },
		},
		"delete": {
			write: func(t *testing.T, c client.Client) error { return c.Delete(t.Context(), configMap("one")) },
			isErr: apierrors.IsNotFound,
			isGet: apierrors.IsNotFound,
		},
		"delete all of": {
			write: func(t *testing.T, c client.Client) error {
				return c.DeleteAllOf(t.Context(), configMap(""), client.InNamespace("default"))
			},
			isErr: apierrors.IsForbidden,
			isGet: apierrors.IsNotFound,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLate(t, patience)
				var tries atomic.Int32
				l.api.Set(func(r *http.Request) http.HandlerFunc {
					if r.Method == http.MethodGet {
						return nil
					}
					again := tries.Add(1) > 1
					if again && name != "delete all of" {
						return nil
					}
					return func(w http.ResponseWriter, r *http.Request) {
						if again { // the rights were withdrawn meanwhile
							forbid(w)
							return
						}
						l.api.Fake.ServeHTTP(httptest.NewRecorder(), r)
						w.Header().Set("Retry-After", "1")
						w.WriteHeader(http.StatusServiceUnavailable)
					}
				})
				err := tc.write(t, l.c)
				require.True(t, tc.isErr(err), "%v", err)
				require.EqualValues(t, 2, tries.Load())

				object := "one"
				if name == "create" {
					object = "new"
				}
				err = l.c.Get(t.Context(), client.ObjectKeyFromObject(configMap(object)), configMap(object))
				require.True(t, tc.isGet(err), "%v", err)
			})
		})
	}
}

// dropping is the answer to a watch, of which a gateway drops the events, and
// passes bookmarks, while drops is true. It passes the objects of a list.
type dropping struct {
	http.ResponseWriter

	drops *atomic.Bool
	lists bool   // until the first bookmark
	rest  []byte // the beginning of a frame
}

// Write implements io.Writer.
func (d *dropping) Write(p []byte) (int, error) {
	d.rest = append(d.rest, p...)
	for {
		end := bytes.IndexByte(d.rest, '\n') + 1
		if end == 0 {
			return len(p), nil
		}
		frame := d.rest[:end]
		d.rest = bytes.Clone(d.rest[end:])
		bookmark := bytes.Contains(frame, []byte(`"BOOKMARK"`))
		if d.drops.Load() && !d.lists && !bookmark {
			continue
		}
		d.lists = d.lists && !bookmark
		if _, err := d.ResponseWriter.Write(frame); err != nil {
			return 0, err
		}
	}
}

// Flush implements http.Flusher.
func (d *dropping) Flush() { d.ResponseWriter.(http.Flusher).Flush() }

// TestHazardGatewayDropsEventsAndPassesBookmarks: the caches come further than
// the writes, without what was written.
func TestHazardGatewayDropsEventsAndPassesBookmarks(t *testing.T) {
	for way, write := range ownWrites {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLate(t, patience)
				l.release()
				drops := &atomic.Bool{}
				l.api.Set(func(r *http.Request) http.HandlerFunc {
					if r.URL.Query().Get("watch") != "true" {
						return nil
					}
					return func(w http.ResponseWriter, r *http.Request) {
						lists := r.URL.Query().Has("sendInitialEvents")
						l.api.Fake.ServeHTTP(&dropping{ResponseWriter: w, drops: drops, lists: lists}, r)
					}
				})
				l.api.Cut() // the watches resume through the gateway
				time.Sleep(time.Minute)
				_, cached := states(t, l.c)
				require.True(t, cached)

				drops.Store(true)
				require.NoError(t, write(t, l.c))
				read, reads := 0, repeat.Times(4*60)
				for range reads {
					time.Sleep(4 * time.Minute / time.Duration(reads))
					truth, failed := everything(t, l.live)
					shown, err := everything(t, l.c)
					if failed != nil || err != nil { // while the cache is found out, and lists anew
						continue
					}
					require.Equal(t, truth, shown)
					read++
				}
				require.Greater(t, read, reads*5/6)
			})
		})
	}
}

// everything returns the states of all ConfigMaps and Deployments, by lists and
// by Gets, by name.
func everything(t *testing.T, r client.Reader) (map[string]string, error) {
	found := map[string]string{}
	maps, apps := &corev1.ConfigMapList{}, &appsv1.DeploymentList{}
	err := errors.Join(r.List(t.Context(), maps), r.List(t.Context(), apps))
	for _, o := range maps.Items {
		found["listed "+o.Name] = o.ResourceVersion
	}
	for _, o := range apps.Items {
		found["listed Deployment "+o.Name] = o.ResourceVersion
	}
	for _, name := range []string{"one", "two", "new", "kept"} {
		o := configMap(name)
		failed := r.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		if failed == nil {
			found[name] = o.ResourceVersion
		}
		err = errors.Join(err, client.IgnoreNotFound(failed))
	}
	return found, err
}

func forbid(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
}

// TestHazardScaleHasNoLabels: the answer to a write of the scale shows the
// version of an object, and not its labels. A watch by labels that does not have
// the object yet is behind all the same.
func TestHazardScaleHasNoLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := client.MatchingLabels{"app": "x"}
		l := newLate(t, patience, x)
		app := &appsv1.Deployment{ObjectMeta: fleettest.ObjectMeta("new")}
		app.Labels = x
		require.NoError(t, l.c.Create(t.Context(), app))
		l.api.Set(func(r *http.Request) http.HandlerFunc {
			path, is := strings.CutSuffix(r.URL.Path, "/scale")
			if !is {
				return nil
			}
			return func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path = path
				answer, o := httptest.NewRecorder(), &appsv1.Deployment{}
				l.api.Fake.ServeHTTP(answer, r)
				require.NoError(t, json.Unmarshal(answer.Body.Bytes(), o))
				fleettest.Answer(w, &autoscalingv1.Scale{
					TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
					ObjectMeta: metav1.ObjectMeta{
						Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion},
				})
			}
		})
		three := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))
		require.NoError(t, l.c.SubResource("scale").Patch(t.Context(), app, three,
			client.WithSubResourceBody(&autoscalingv1.Scale{})))

		truth, _ := states(t, l.live, x)
		require.Contains(t, truth, "Deployment new")
		shown, _ := states(t, l.c, x)
		require.Equal(t, truth, shown)
	})
}
