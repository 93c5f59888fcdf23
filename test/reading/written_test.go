// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// patience is the Options.ReadYourWrites of these tests.
const patience = time.Second

// late is a cluster whose watches show nothing while they are held.
type late struct {
	cc   *clustercache.ClusterCache
	api  *fleettest.API
	c    client.Client // reads what was written
	live client.Client
}

// newLate returns such a cluster, whose ConfigMaps and Deployments are cached.
func newLate(t *testing.T, readYourWrites time.Duration, opts ...client.ListOption) *late {
	t.Helper()
	l := &late{api: fleettest.NewAPI(t, "uid-a")}
	l.api.Put("one", "1", map[string]any{"app": "x"})
	l.api.Put("two", "2", map[string]any{"app": "y"})
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), l.api.Config())
	o := fleettest.Silent(d)
	o.ReadYourWrites = readYourWrites
	l.cc = fleettest.Start(t, o)
	require.NoError(t, l.cc.Cluster(fleettest.Key("a")).Engage())
	synctest.Wait()

	var err error
	l.c, err = l.cc.Cluster(fleettest.Key("a")).Client()
	require.NoError(t, err)
	l.live, err = l.cc.Cluster(fleettest.Key("a")).LiveClient()
	require.NoError(t, err)
	require.NoError(t, l.live.Create(t.Context(), &appsv1.Deployment{ObjectMeta: fleettest.ObjectMeta("one"),
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}}}))
	require.NoError(t, l.live.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "kept", Finalizers: []string{"example.com/keep"}}}))
	for _, kind := range []client.Object{&corev1.ConfigMap{}, &appsv1.Deployment{}} {
		w, err := l.cc.Cluster(fleettest.Key("a")).Watch(t.Context(), kind, opts...)
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
	}
	time.Sleep(10 * time.Minute) // what set the cluster up is not remembered
	l.hold()

	return l
}

func (l *late) hold()    { l.api.Fake.Hold(func(*fakeapi.Request) bool { return true }) }
func (l *late) release() { l.api.Fake.Hold(nil) }

// states lists the states of all ConfigMaps and Deployments, by name, and
// reports whether they are cached ones.
func states(t *testing.T, r client.Reader, opts ...client.ListOption) (found map[string]string, cached bool) {
	t.Helper()
	found = map[string]string{}
	ofMaps, ofApps := clustercache.Origin{}, clustercache.Origin{}
	maps, apps := &corev1.ConfigMapList{}, &appsv1.DeploymentList{}
	require.NoError(t, r.List(t.Context(), maps, append(opts, &ofMaps)...))
	require.NoError(t, r.List(t.Context(), apps, append(opts, &ofApps)...))
	for _, o := range maps.Items {
		found["ConfigMap "+o.Name] = o.ResourceVersion
	}
	for _, o := range apps.Items {
		found["Deployment "+o.Name] = o.ResourceVersion
	}
	return found, ofMaps.Cached && ofApps.Cached
}

// gets is states by Get, of the objects with known names.
func gets(t *testing.T, r client.Reader) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, o := range []client.Object{configMap("one"), configMap("two"), configMap("new"), configMap("kept"),
		&appsv1.Deployment{ObjectMeta: fleettest.ObjectMeta("one")}} {
		err := r.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err)
			found[fmt.Sprintf("%T %s", o, o.GetName())] = o.GetResourceVersion()
		}
	}
	return found
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: fleettest.ObjectMeta(name)}
}

var dataPatch = client.RawPatch(types.MergePatchType, []byte(`{"data":{"value":"patched"}}`))

// ownWrites are the ways to write, each of which changes what reads show.
var ownWrites = map[string]func(t *testing.T, c client.Client) error{
	"create": func(t *testing.T, c client.Client) error { return c.Create(t.Context(), configMap("new")) },
	"create with a generated name": func(t *testing.T, c client.Client) error {
		return c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", GenerateName: "new-"}})
	},
	"update": func(t *testing.T, c client.Client) error {
		o := configMap("one")
		o.Data = map[string]string{"value": "updated"}
		return c.Update(t.Context(), o)
	},
	"patch": func(t *testing.T, c client.Client) error { return c.Patch(t.Context(), configMap("one"), dataPatch) },
	"patch of metadata": func(t *testing.T, c client.Client) error {
		o := clustercache.Kind(fleettest.ConfigMap)
		o.Namespace, o.Name = "default", "one"
		labels := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
		return c.Patch(t.Context(), o, labels)
	},
	"apply": func(t *testing.T, c client.Client) error {
		config := corev1ac.ConfigMap("one", "default").WithData(map[string]string{"value": "applied"})
		return c.Apply(t.Context(), config, client.FieldOwner("test"), client.ForceOwnership)
	},
	"apply without a type": func(t *testing.T, c client.Client) error {
		u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"value": "applied"}}}
		u.SetGroupVersionKind(fleettest.ConfigMap)
		u.SetNamespace("default")
		u.SetName("new")
		return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test"))
	},
	"delete": func(t *testing.T, c client.Client) error { return c.Delete(t.Context(), configMap("one")) },
	"delete of what has a finalizer": func(t *testing.T, c client.Client) error {
		return c.Delete(t.Context(), configMap("kept"))
	},
	"last finalizer": func(t *testing.T, c client.Client) error {
		if err := c.Delete(t.Context(), configMap("kept")); err != nil {
			return err
		}
		return c.Patch(t.Context(), configMap("kept"),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	},
	"delete and create": func(t *testing.T, c client.Client) error {
		if err := c.Delete(t.Context(), configMap("one")); err != nil {
			return err
		}
		return c.Create(t.Context(), configMap("one"))
	},
	"status": func(t *testing.T, c client.Client) error {
		o := &appsv1.Deployment{ObjectMeta: fleettest.ObjectMeta("one")}
		return c.Status().Patch(t.Context(), o,
			client.RawPatch(types.MergePatchType, []byte(`{"status":{"replicas":3}}`)))
	},
}

// TestGuaranteeReadsShowWhatWasWritten compares what a client reads right after
// its write with what the API server answers.
func TestGuaranteeReadsShowWhatWasWritten(t *testing.T) {
	for way, write := range ownWrites {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLate(t, patience)
				before, _ := states(t, l.c)
				require.NoError(t, write(t, l.c))
				time.AfterFunc(300*time.Millisecond, l.release)
				began := time.Now()
				shown, cached := states(t, l.c)
				require.InDelta(t, 300, time.Since(began).Milliseconds(), 10, "the cache is waited for")
				truth, _ := states(t, l.live)
				require.Equal(t, truth, shown)
				require.NotEqual(t, before, shown)
				require.True(t, cached)
				require.Equal(t, gets(t, l.live), gets(t, l.c))
			})
		})
	}
}

// TestReadsDoNotWaitForeverForAWrite: once the write is as old as
// Options.ReadYourWrites, the API server answers, until the cache shows it.
func TestReadsDoNotWaitForeverForAWrite(t *testing.T) {
	for way, write := range ownWrites {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLate(t, patience)
				began := time.Now()
				require.NoError(t, write(t, l.c))
				truth, _ := states(t, l.live)
				shown, cached := states(t, l.c)
				require.Equal(t, truth, shown)
				require.False(t, cached)
				require.Equal(t, patience, time.Since(began))
				require.Equal(t, gets(t, l.live), gets(t, l.c))
				require.Equal(t, patience, time.Since(began), "no read waits for what is older")

				l.release()
				synctest.Wait()
				require.Equal(t, gets(t, l.live), gets(t, l.c))
				shown, cached = states(t, l.c)
				require.Equal(t, truth, shown)
				require.True(t, cached)
			})
		})
	}
}

// TestCacheOnlyReadsFailRatherThanGoBehindAWrite: they send no request.
func TestCacheOnlyReadsFailRatherThanGoBehindAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLate(t, patience)
		require.NoError(t, l.c.Patch(t.Context(), configMap("one"), dataPatch))
		get := func(name string) error {
			key := client.ObjectKeyFromObject(configMap(name))
			return l.c.Get(t.Context(), key, configMap(name), clustercache.CacheOnly)
		}
		list := func(opts ...client.ListOption) error {
			return l.c.List(t.Context(), &corev1.ConfigMapList{}, append(opts, clustercache.CacheOnly)...)
		}
		require.ErrorIs(t, get("one"), clustercache.ErrStale)
		require.ErrorIs(t, list(), clustercache.ErrStale)
		require.NoError(t, get("two"))
		require.NoError(t, list(client.MatchingFields{"metadata.name": "two"}))

		l.release()
		synctest.Wait()
		require.NoError(t, get("one"))
		require.NoError(t, list())
	})
}

// TestReadsAreNotHeldUpByWritesThatNeedNotBeShown: those of dry runs, those
// that were refused, those that are excepted, and all of them by default.
func TestReadsAreNotHeldUpByWritesThatNeedNotBeShown(t *testing.T) {
	quiet := client.DisableReadYourWritesConsistency
	for name, tc := range map[string]struct {
		off   bool
		write func(t *testing.T, c client.Client) error
		read  []client.GetOption
		fails bool
	}{
		"dry runs": {write: func(t *testing.T, c client.Client) error {
			require.NoError(t, c.Delete(t.Context(), configMap("one"), client.DryRunAll))
			all := client.InNamespace("default")
			require.NoError(t, c.DeleteAllOf(t.Context(), configMap(""), all, client.DryRunAll))
			return c.Patch(t.Context(), configMap("one"), dataPatch, client.DryRunAll)
		}},
		"refused": {fails: true, write: func(t *testing.T, c client.Client) error {
			return c.Create(t.Context(), configMap("one"))
		}},
		"excepted writes": {write: func(t *testing.T, c client.Client) error {
			return c.Patch(t.Context(), configMap("one"), dataPatch, quiet)
		}},
		"excepted deletes": {write: func(t *testing.T, c client.Client) error {
			return c.Delete(t.Context(), configMap("one"), quiet)
		}},
		"excepted deletes of many": {write: func(t *testing.T, c client.Client) error {
			return c.DeleteAllOf(t.Context(), configMap(""), &client.DeleteAllOfOptions{
				ListOptions:   client.ListOptions{LabelSelector: appIs("none")},
				DeleteOptions: client.DeleteOptions{DisableReadYourWritesConsistency: true},
			}, client.InNamespace("default"))
		}},
		"excepted reads": {read: []client.GetOption{quiet}, write: func(t *testing.T, c client.Client) error {
			return c.Patch(t.Context(), configMap("one"), dataPatch)
		}},
		"by default": {off: true, write: func(t *testing.T, c client.Client) error {
			return c.Patch(t.Context(), configMap("one"), dataPatch)
		}},
		"a patch without a change": {write: func(t *testing.T, c client.Client) error {
			return c.Patch(t.Context(), configMap("one"), client.RawPatch(types.MergePatchType, []byte(`{}`)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				readYourWrites := patience
				if tc.off {
					readYourWrites = 0
				}
				l := newLate(t, readYourWrites)
				require.Equal(t, tc.fails, tc.write(t, l.c) != nil)
				began, from := time.Now(), clustercache.Origin{}
				got, opts := configMap("one"), append(tc.read, &from)
				require.NoError(t, l.c.Get(t.Context(), client.ObjectKeyFromObject(got), got, opts...))
				require.True(t, from.Cached)
				require.Equal(t, "1", got.Data["value"])
				require.Zero(t, time.Since(began))
			})
		})
	}
}

// TestWriteThatMayBeExecutedLaterIsReadLive: after a write without an answer,
// the API server answers for a minute, and nothing waits.
func TestWriteThatMayBeExecutedLaterIsReadLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLate(t, patience)
		l.api.FailIf(http.StatusGatewayTimeout, func(r *http.Request) bool { return r.Method == http.MethodPatch })
		require.Error(t, l.c.Patch(t.Context(), configMap("one"), dataPatch))
		l.api.Heal()
		l.api.Put("one", "executed later", nil)
		synctest.Wait()

		read := func() (string, bool) {
			got, from := configMap("one"), clustercache.Origin{}
			require.NoError(t, l.c.Get(t.Context(), client.ObjectKeyFromObject(got), got, &from))
			return got.Data["value"], from.Cached
		}
		began := time.Now()
		value, cached := read()
		require.Equal(t, "executed later", value)
		require.False(t, cached)
		require.Zero(t, time.Since(began))

		l.release()
		time.Sleep(61 * time.Second)
		_, cached = read()
		require.True(t, cached)
	})
}

// TestDeletionOfManyIsReadLiveUntilAList: what DeleteAllOf has deleted is not
// known, but the next list of the API server shows all of it.
func TestDeletionOfManyIsReadLiveUntilAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLate(t, patience)
		require.NoError(t, l.c.DeleteAllOf(t.Context(), configMap(""), client.InNamespace("default"),
			client.MatchingLabels{"app": "x"}))
		began := time.Now()
		shown, cached := states(t, l.c)
		require.NotContains(t, shown, "ConfigMap one")
		require.Contains(t, shown, "ConfigMap two")
		require.False(t, cached)
		require.Zero(t, time.Since(began))

		time.AfterFunc(300*time.Millisecond, l.release)
		after, cached := states(t, l.c)
		require.Equal(t, shown, after)
		require.True(t, cached)
	})
}

// TestWritesOutsideOfASelectionAreNotWaitedFor: the watch of a selection does
// not show the version of a write to what it does not select.
func TestWritesOutsideOfASelectionAreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := client.MatchingLabels{"app": "x"}
		l := newLate(t, patience, x)
		l.release()
		require.NoError(t, l.c.Patch(t.Context(), configMap("two"), dataPatch))
		require.NoError(t, l.c.Create(t.Context(), configMap("new")))
		began := time.Now()
		shown, cached := states(t, l.c, x)
		require.Len(t, shown, 1)
		require.True(t, cached)
		require.Zero(t, time.Since(began))

		// One that leaves the selection is.
		l.hold()
		require.NoError(t, l.c.Patch(t.Context(), configMap("one"),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"z"}}}`))))
		shown, cached = states(t, l.c, x)
		require.Empty(t, shown)
		require.False(t, cached)
	})
}

// TestWritesToAnotherClusterAreForgotten: the versions of a cluster mean
// nothing in the one that replaced it.
func TestWritesToAnotherClusterAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLate(t, patience)
		for range 100 {
			require.NoError(t, l.c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", GenerateName: "new-"}}))
		}
		require.NoError(t, l.c.Patch(t.Context(), configMap("one"), dataPatch))
		l.release()
		l.api.Restart("uid-b")
		l.api.Put("one", "b", nil)
		time.Sleep(time.Minute)
		require.Contains(t, fleettest.Status(t, l.cc).Epoch, "uid-b")

		got, from := configMap("one"), clustercache.Origin{}
		require.NoError(t, l.c.Get(t.Context(), client.ObjectKeyFromObject(got), got, &from))
		require.Equal(t, "b", got.Data["value"])
		require.True(t, from.Cached)
	})
}

// TestHazardAnswerShowsTheVersionBeforeTheDeletion: older API servers answer
// the write that removes the last finalizer with the version that the object
// had before.
func TestHazardAnswerShowsTheVersionBeforeTheDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLate(t, patience)
		l.release()
		require.NoError(t, l.c.Delete(t.Context(), configMap("kept")))
		synctest.Wait()
		l.hold()
		l.api.Set(func(r *http.Request) http.HandlerFunc {
			if r.Method != http.MethodPatch {
				return nil
			}
			return func(w http.ResponseWriter, r *http.Request) {
				before := l.api.Version()
				answer := httptest.NewRecorder()
				l.api.Fake.ServeHTTP(answer, r)
				o := &unstructured.Unstructured{}
				require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &o.Object))
				o.SetResourceVersion(strconv.Itoa(before))
				fleettest.Answer(w, o)
			}
		})
		none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		require.NoError(t, l.c.Patch(t.Context(), configMap("kept"), none))
		require.True(t, apierrors.IsNotFound(
			l.c.Get(t.Context(), client.ObjectKeyFromObject(configMap("kept")), configMap("kept"))))
		shown, _ := states(t, l.c)
		require.NotContains(t, shown, "ConfigMap kept")
	})
}
