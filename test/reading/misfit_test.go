// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// canary stands for what is secret in an object.
const canary = "hunter2"

// misfits are Pods that do not fit a form: what is in their JSON beside the
// name, and what the error says of it.
var misfits = map[string]struct{ form, metadata, rest, says string }{
	"another type": {form: "typed", rest: `,"spec":{"priority":"hunter2"}`,
		says: "spec.priority: a string does not fit int32"},
	"a time": {form: "typed", rest: `,"status":{"startTime":"hunter2"}`,
		says: "status.startTime: a string does not fit v1.Time"},
	"a quantity in a container": {form: "typed",
		rest: `,"spec":{"containers":[{},{"resources":{"limits":{"hunter2":"hunter2"}}}]}`,
		says: "spec.containers[1].resources.limits[...]: a string does not fit resource.Quantity"},
	"a number beyond bounds": {form: "typed", rest: `,"spec":{"priority":47110000000000}`,
		says: "spec.priority: a number does not fit int32"},
	"a label": {form: "typed", metadata: `,"labels":{"hunter2":4711}`,
		says: "metadata.labels[...]: a number does not fit string"},
	"a label of metadata": {form: "metadata", metadata: `,"labels":{"hunter2":4711}`,
		says: "metadata.labels[...]: a number does not fit string"},
	"an owner of metadata": {form: "metadata", metadata: `,"ownerReferences":"hunter2"`,
		says: "metadata.ownerReferences: a string does not fit"},
	"no JSON":              {form: "unstructured", rest: `,"data":hunter2`},
	"no JSON, of any type": {form: "typed", rest: `,"spec":hunter2`},
}

// TestHazardLiveAnswerThatCannotBeDecoded: the error names operation, cluster,
// kind, object and field, and no byte of the content.
func TestHazardLiveAnswerThatCannotBeDecoded(t *testing.T) {
	fleettest.HostileCluster(t, nil, func(t *testing.T, h *fleettest.API, cc *clustercache.ClusterCache) {
		about := func(err error, op, object, field string) {
			t.Helper()
			requireRefused(t, err, clustercache.ErrAnswer, op)
			for _, part := range []string{op + " ", "Pod", "fleet/a", object, field} {
				require.Contains(t, err.Error(), part)
			}
			require.NotContains(t, err.Error(), canary)
			require.NotContains(t, err.Error(), "4711")
		}
		for name, row := range misfits {
			pod := func(name string) string {
				return `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"default","name":"` + name + `"` +
					row.metadata + `}` + row.rest + `}`
			}
			broken := row.says == ""
			for way, r := range readers(t, cc) {
				t.Log(name, way)
				h.Set(successes(pod("one")))
				key := client.ObjectKey{Namespace: "default", Name: "one"}
				about(r.Get(t.Context(), key, objectForms()[row.form]), "get", "default/one", row.says)
				if !broken {
					good := `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"default","name":"zero"}},`
					h.Set(successes(podList + good + pod("one") + "]}"))
					about(r.List(t.Context(), listForms()[row.form]), "list", `items[1] "default/one"`, row.says)
				}
			}
			if row.form == "typed" {
				live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
				require.NoError(t, err)
				h.Set(successes(pod("one")))
				sent := &corev1.Pod{}
				sent.Namespace, sent.Name = "default", "one"
				about(live.Update(t.Context(), sent), "update", "default/one", row.says)
			}
		}

		const noList = `{"kind":"PodList","apiVersion":"v1",`
		for list, says := range map[string]string{
			podList + `4711]}`:                                  "items[0]: a number does not fit v1.Pod",
			podList + `hunter2]}`:                               "items[0] (*json.SyntaxError)",
			noList + `"items":"hunter2"}`:                       "items is not",
			noList + `"metadata":{"continue":4711},"items":[]}`: "metadata.continue is not a string",
		} {
			h.Set(successes(list))
			about(cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.PodList{}), "list", "", says)
		}
		h.Set(successes(`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"default","name":"one"},` +
			`"spec":{"priority":"` + strings.Repeat(canary, 1<<18) + `"}}`))
		about(cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(),
			client.ObjectKey{Namespace: "default", Name: "one"},
			&corev1.Pod{}), "get", "default/one", "")
	})
}

// TestHazardLiveObjectThatAnIndexCannotDecode: a list by a field that only the
// index knows is selected here, and its objects converted.
func TestHazardLiveObjectThatAnIndexCannotDecode(t *testing.T) {
	for name, form := range map[string]events.Representation{
		"by the index": events.Typed, "by the list": events.Unstructured,
	} {
		t.Run(name, func(t *testing.T) {
			log := &fleettest.Logbook{}
			fleettest.HostileCluster(t, func(o *clustercache.Options) {
				o.Logger = log.Logger()
				o.Indexes = []clustercache.Index{{GVK: podKind, Field: "app", Representation: form,
					Values: func(o client.Object) []string { return []string{o.GetLabels()["app"]} }}}
			}, func(t *testing.T, h *fleettest.API, cc *clustercache.ClusterCache) {
				h.Set(successes(podList + `{"metadata":{"namespace":"default","name":"one","labels":{"app":"x"}},` +
					`"status":{"startTime":"hunter2"}}]}`))
				err := cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.PodList{},
					client.MatchingFields{"app": "x"})
				for _, part := range []string{"list v1 Pod in cluster fleet/a", "default/one",
					"status.startTime: a string does not fit v1.Time"} {
					require.ErrorContains(t, err, part)
				}
				require.NotContains(t, err.Error(), canary)
				require.Zero(t, log.Count(canary), "%v", log.Lines)
			})
		})
	}
}

// TestHazardCachedObjectThatCannotBeDecoded: a read names the object and the
// field, and the log has one line for each object, whatever number of events
// and handlers it has.
func TestHazardCachedObjectThatCannotBeDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d, log := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory(), &fleettest.Logbook{}
		d.Set(fleettest.Key("a"), api.Config())
		options := fleettest.Silent(d)
		options.Logger = log.Logger()
		options.Informers.Transforms = map[schema.GroupResource]informerpool.TransformFunc{
			{Resource: "configmaps"}: func(u *unstructured.Unstructured) error {
				u.Object["data"] = map[string]any{canary: int64(4711)}
				return nil
			}}
		cc := fleettest.Start(t, options)
		api.Put("one", "0", nil)
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		says := func(text string) {
			t.Helper()
			require.Contains(t, text, "default/one")
			require.Contains(t, text, "data[...]: a number does not fit string")
			require.NotContains(t, text, canary)
			require.NotContains(t, text, "4711")
		}
		says(fleettest.Get(t, cc).Error())
		says(cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.ConfigMapList{}).Error())

		asks := 0
		for range 2 {
			asserts := predicate.NewPredicateFuncs(func(client.Object) bool { return true })
			objects := fleettest.FollowObjects(t, cc, events.Selection{
				Kinds: []client.Object{&corev1.ConfigMap{}}, Predicates: []predicate.Predicate{asserts}})
			for i := range 10 {
				api.Put("one", string(rune('1'+i)), nil)
				e, _ := objects.Wait(fleettest.Named(fleettest.Key("a"), "one"))
				_, err := e.As(events.AsGiven, e.New)
				require.Error(t, err)
				asks++
			}
		}
		require.Equal(t, 20, asks)
		require.Equal(t, 1, log.Count("default/one"), "%v", log.Lines)
		api.Put("two", "0", nil)
		synctest.Wait()
		require.Equal(t, 1, log.Count("default/two"), "%v", log.Lines)

		remote, err := multicluster.New(cc, multicluster.Options{}).Cluster(fleettest.Key("a"))
		require.NoError(t, err)
		informer, err := remote.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		for range 2 {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
			require.NoError(t, err)
		}
		for i := range 10 {
			api.Put("one", string(rune('1'+i)), nil)
			synctest.Wait()
		}
		require.Equal(t, 1, log.Count("Object cannot be decoded", "default/one", "fleet/a"), "%v", log.Lines)
	})
}
