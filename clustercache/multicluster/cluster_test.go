// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func read(t *testing.T, r client.Reader, opts ...client.GetOption) (string, error) {
	t.Helper()
	c := &corev1.ConfigMap{}
	err := r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, c, opts...)
	return c.Data["in"] + c.Data["value"], err
}

// TestClusterIsMadeWithoutIOAndStaysTheSame checks this before the ClusterCache
// runs, while the cluster is down, and after a different cluster took its
// place.
func TestClusterIsMadeWithoutIOAndStaysTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirectory()
		cc, err := clustercache.New(clustercache.Options{Resolver: d})
		require.NoError(t, err)
		s := multicluster.New(cc, multicluster.Options{})
		cl, err := s.Cluster(key("a"))
		require.NoError(t, err)
		require.Equal(t, reflect.Pointer, reflect.TypeOf(cl).Kind(), "who compares clusters must be able to")
		require.NotNil(t, cl.GetHTTPClient())
		require.Same(t, cc.Options().Scheme, cl.GetScheme())
		require.Empty(t, cl.GetConfig().BearerToken)
		require.NotNil(t, cl.GetEventRecorder("test"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		require.False(t, cl.GetCache().WaitForCacheSync(ctx), "nothing was started")
		cancel()

		fleettest.Run(t, cc)
		synctest.Wait()
		require.True(t, cl.GetCache().WaitForCacheSync(t.Context()))
		_, err = read(t, cl.GetClient())
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		require.NotErrorIs(t, err, clustercache.ErrNotConnected)

		servers := clustercachetest.New(t, clustercachetest.Options{})
		for _, name := range []string{"first", "second"} {
			api := serve(servers, name)
			api.put("one", "1")
			d.set(key("a"), api.Config())
			time.Sleep(time.Minute)
			for what, r := range map[string]client.Reader{"client": cl.GetClient(), "API reader": cl.GetAPIReader(),
				"cache": cl.GetCache()} {
				in, err := read(t, r)
				require.NoError(t, err, what)
				require.Equal(t, name+"1", in, what)
			}
			same, err := s.Cluster(key("a"))
			require.NoError(t, err)
			require.Same(t, cl, same)
			d.set(key("a"), nil)
			time.Sleep(time.Minute)
			for what, r := range map[string]client.Reader{"client": cl.GetClient(), "API reader": cl.GetAPIReader(),
				"cache": cl.GetCache()} {
				_, err := read(t, r)
				require.ErrorIs(t, err, clustercache.ErrUnknownCluster, what)
			}
			_, err = cl.GetRESTMapper().RESTMapping(schema.GroupKind{Kind: "ConfigMap"})
			require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		}
		s.Forget(key("a"))
		other, err := s.Cluster(key("a"))
		require.NoError(t, err)
		require.NotSame(t, cl, other)
	})
}

// TestReadsOfACacheAreThoseOfControllerRuntime checks that reads work in every
// form, come from the cache once it is filled, and never wait.
func TestReadsOfACacheAreThoseOfControllerRuntime(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, f *fleet, api *apiServer, cl cluster.Cluster) {
		c := cl.GetClient()
		origin := clustercache.Origin{}
		_, err := read(t, c, &origin)
		require.NoError(t, err)
		require.False(t, origin.Cached, "the first read does not wait for a list")
		synctest.Wait()
		_, informers := f.watches("a")
		require.Equal(t, 1, informers, "but has it made")
		for what, obj := range map[string]client.Object{
			"typed":        &corev1.ConfigMap{},
			"unstructured": &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}},
			"metadata": &metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}},
		} {
			require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, obj, &origin),
				what)
			require.True(t, origin.Cached, what)
			require.Equal(t, "one", obj.GetName(), what)
		}
		for what, list := range map[string]client.ObjectList{
			"typed": &corev1.ConfigMapList{},
			"unstructured": &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1",
				"kind": "ConfigMapList"}},
			"metadata": &metav1.PartialObjectMetadataList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}},
		} {
			require.NoError(t, c.List(t.Context(), list, client.InNamespace("default"),
				client.MatchingLabels{"app": "x"}, &origin), what)
			require.True(t, origin.Cached, what)
			require.Equal(t, 1, meta.LenList(list), what)
		}
		require.Equal(t, 1, api.streams())
		err = c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "none"}, &corev1.ConfigMap{})
		require.True(t, apierrors.IsNotFound(err))

		api.Disconnect()
		time.Sleep(time.Minute)
		begin := time.Now()
		_, err = read(t, c)
		require.ErrorIs(t, err, clustercache.ErrNotConnected)
		in, err := read(t, c, clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour))
		require.NoError(t, err, "options of clustercache reach it")
		require.Equal(t, "uid-a1", in)
		require.ErrorIs(t, c.Update(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}),
			clustercache.ErrNotConnected)
		require.Zero(t, time.Since(begin))

		api.Connect()
		time.Sleep(time.Hour)
		_, informers = f.watches("a")
		require.Zero(t, informers, "what reads took goes when it is idle")
	})
}

func TestOnlyWatchedReadsTakeNoInformer(t *testing.T) {
	one(t, multicluster.Options{OnlyWatched: true}, func(t *testing.T, f *fleet, _ *apiServer, cl cluster.Cluster) {
		origin := clustercache.Origin{}
		for range 3 {
			_, err := read(t, cl.GetCache(), &origin)
			require.NoError(t, err)
			require.False(t, origin.Cached)
			require.NoError(t, cl.GetCache().List(t.Context(), &corev1.ConfigMapList{}, &origin))
			synctest.Wait()
		}
		watches, _ := f.watches("a")
		require.Zero(t, watches)
		_, err := informer(t, cl, &corev1.ConfigMap{}).AddEventHandler((&record{}).handler())
		require.NoError(t, err)
		synctest.Wait()
		_, err = read(t, cl.GetCache(), &origin)
		require.NoError(t, err)
		require.True(t, origin.Cached)
	})
}

func byValue(o client.Object) []string { return []string{o.(*corev1.ConfigMap).Data["value"]} }

func listByValue(t *testing.T, r client.Reader, value string) ([]string, error) {
	t.Helper()
	list := &corev1.ConfigMapList{}
	err := r.List(t.Context(), list, client.MatchingFields{"value": value}, client.InNamespace("default"))
	var names []string
	for _, o := range list.Items {
		names = append(names, o.Name)
	}
	return names, err
}

// TestFieldIndexOutlivesInformersAndConnections checks that an index can be
// added before anything exists, and serves the first list as well as the last.
func TestFieldIndexOutlivesInformersAndConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		cl := f.cluster("a")
		require.NoError(t, cl.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "value", byValue))
		err := cl.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "value", byValue)
		require.ErrorIs(t, err, clustercache.ErrIndexExists)
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		require.NoError(t, cl.GetFieldIndexer().IndexField(t.Context(), u, "value", byValue),
			"another form is served by the same index")
		api := f.add("a")
		time.Sleep(time.Minute)
		names, err := listByValue(t, cl.GetClient(), "2")
		require.NoError(t, err, "the first list waits, since no server could answer it")
		require.Equal(t, []string{"two"}, names)
		require.Empty(t, api.Requests(clustercachetest.Verb("list"), clustercachetest.Resource("configmaps")))

		time.Sleep(time.Hour)
		_, informers := f.watches("a")
		require.Zero(t, informers)
		api.put("two", "3")
		names, err = listByValue(t, cl.GetClient(), "3")
		require.NoError(t, err)
		require.Equal(t, []string{"two"}, names)
		api.Disconnect()
		time.Sleep(time.Minute)
		begin := time.Now()
		_, err = listByValue(t, cl.GetClient(), "3")
		require.ErrorIs(t, err, clustercache.ErrNotConnected)
		require.Zero(t, time.Since(begin))
		api.put("two", "4")
		api.Connect()
		time.Sleep(time.Minute)
		names, err = listByValue(t, cl.GetClient(), "4")
		require.NoError(t, err)
		require.Equal(t, []string{"two"}, names)

		// It waits no longer than documented for a server that does not list.
		time.Sleep(time.Hour)
		heal := api.Fail(clustercachetest.Status(http.StatusInternalServerError), allConfigMaps)
		begin = time.Now()
		_, err = listByValue(t, cl.GetClient(), "4")
		require.ErrorIs(t, err, clustercache.ErrNotSynced)
		require.LessOrEqual(t, time.Since(begin), multicluster.DefaultSyncTimeout)
		heal()

		// Forgetting a cluster drops its indexes.
		f.Forget(key("a"))
		err = cl.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "other", byValue)
		require.ErrorIs(t, err, clustercache.ErrReleased)
		again := f.cluster("a")
		require.NoError(t, again.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "value", byValue))
	})
}

// TestIndexersOfAnInformerCanBeSelectedBy checks selection by an informer's
// indexers, and by an index of all clusters, including clusters added later.
func TestIndexersOfAnInformerCanBeSelectedBy(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, f *fleet, _ *apiServer, cl cluster.Cluster) {
		i := informer(t, cl, &corev1.ConfigMap{})
		require.NoError(t, i.AddIndexers(toolscache.Indexers{"value": func(obj any) ([]string, error) {
			return byValue(obj.(client.Object)), nil
		}}))
		names, err := listByValue(t, cl.GetCache(), "1")
		require.NoError(t, err)
		require.Equal(t, []string{"one"}, names)

		f.Forget(key("a"))
		require.NoError(t, f.IndexField(t.Context(), &corev1.ConfigMap{}, "value", byValue))
		require.ErrorIs(t, f.IndexField(t.Context(), &corev1.ConfigMap{}, "value", byValue),
			clustercache.ErrIndexExists)
		meta := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
		require.NoError(t, f.IndexField(t.Context(), meta, "value", byValue))
		f.add("b")
		for _, name := range []string{"a", "b"} {
			cl := f.cluster(name)
			require.NoError(t, cl.GetFieldIndexer().IndexField(t.Context(), meta, "value", byValue))
			time.Sleep(time.Second)
			names, err := listByValue(t, cl.GetClient(), "2")
			require.NoError(t, err)
			require.Equal(t, []string{"two"}, names)
		}
	})
}

// TestErrorOfAnIndexerIsReported checks that an object for which the function
// fails is not taken for one without values.
func TestErrorOfAnIndexerIsReported(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, _ *fleet, _ *apiServer, cl cluster.Cluster) {
		i := informer(t, cl, &corev1.ConfigMap{})
		require.NoError(t, i.AddIndexers(toolscache.Indexers{"value": func(obj any) ([]string, error) {
			if obj.(*corev1.ConfigMap).Name == "two" {
				return nil, errors.New("none")
			}
			return byValue(obj.(client.Object)), nil
		}}))
		_, err := listByValue(t, cl.GetCache(), "2")
		failure, ok := errors.AsType[*clustercache.IndexError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, "value", failure.Field)
		require.Equal(t, "two", failure.Object.Name)
	})
}

// TestRESTMapperAnswersWhileTheClusterIsDown checks that it still answers from
// its cache, so that an owner's events are not lost.
func TestRESTMapperAnswersWhileTheClusterIsDown(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, _ *fleet, api *apiServer, cl cluster.Cluster) {
		m := cl.GetRESTMapper()
		mapping, err := m.RESTMapping(schema.GroupKind{Kind: "ConfigMap"}, "v1")
		require.NoError(t, err)
		require.Equal(t, "configmaps", mapping.Resource.Resource)
		api.Disconnect()
		time.Sleep(time.Minute)
		again, err := m.RESTMapping(schema.GroupKind{Kind: "ConfigMap"}, "v1")
		require.NoError(t, err)
		require.Equal(t, mapping, again)
		resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		kind, err := m.KindFor(resource)
		require.NoError(t, err)
		require.Equal(t, configMap, kind)
		kinds, err := m.KindsFor(resource)
		require.NoError(t, err)
		require.Equal(t, []schema.GroupVersionKind{configMap}, kinds)
		found, err := m.ResourceFor(resource)
		require.NoError(t, err)
		require.Equal(t, resource, found)
		all, err := m.ResourcesFor(resource)
		require.NoError(t, err)
		require.Equal(t, []schema.GroupVersionResource{resource}, all)
		mappings, err := m.RESTMappings(schema.GroupKind{Kind: "ConfigMap"})
		require.NoError(t, err)
		require.Len(t, mappings, 1)
		singular, err := m.ResourceSingularizer("configmaps")
		require.NoError(t, err)
		require.Equal(t, "configmap", singular)
	})
}

// TestEndOfStartStopsInformers checks that the end of Start, as at the end of a
// manager, stops the informers; the ClusterCache may continue for others.
func TestEndOfStartStopsInformers(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, f *fleet, api *apiServer, cl cluster.Cluster) {
		first, second := fleettest.Run(t, cl), fleettest.Run(t, cl)
		synctest.Wait()
		i := informer(t, cl, &corev1.ConfigMap{})
		r := &record{}
		_, err := i.AddEventHandler(r.handler())
		require.NoError(t, err)
		r.take()
		first()
		api.put("more", "1")
		require.Equal(t, []string{"add more"}, r.take(), "somebody else has it started")
		second()
		require.True(t, i.IsStopped())
		time.Sleep(time.Minute)
		watches, _ := f.watches("a")
		require.Zero(t, watches)
		again := informer(t, cl, &corev1.ConfigMap{})
		_, err = again.AddEventHandler(r.handler())
		require.NoError(t, err)
		require.Len(t, r.take(), 3)
	})
}

// TestClusterOptionsReachTheEmbeddedCluster checks also that the options cannot
// replace the parts that follow the cluster.
func TestClusterOptionsReachTheEmbeddedCluster(t *testing.T) {
	dry := true
	o := multicluster.Options{ClusterOptions: []cluster.Option{func(o *cluster.Options) {
		o.Client.DryRun = &dry
		o.Client.Cache = &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}}
		o.HTTPClient, o.NewCache, o.Scheme = nil, nil, nil
	}}}
	one(t, o, func(t *testing.T, _ *fleet, _ *apiServer, cl cluster.Cluster) {
		origin := clustercache.Origin{}
		in, err := read(t, cl.GetClient(), &origin)
		require.NoError(t, err)
		require.Equal(t, "uid-a1", in)
		require.Zero(t, origin, "not asked by the cache")
	})
	refused := multicluster.Options{ClusterOptions: []cluster.Option{func(o *cluster.Options) {
		o.NewClient = func(*rest.Config, client.Options) (client.Client, error) { return nil, errors.New("no client") }
	}}}
	cc, err := clustercache.New(clustercache.Options{Resolver: newDirectory()})
	require.NoError(t, err)
	_, err = multicluster.New(cc, refused).Cluster(key("a"))
	require.ErrorContains(t, err, "no client")
}
