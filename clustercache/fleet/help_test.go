// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// eachItem calls f with each object of a list.
func eachItem(list client.ObjectList, f func(client.Object)) error {
	return meta.EachListItem(list, func(o runtime.Object) error {
		f(o.(client.Object))
		return nil
	})
}

// gauge counts what happens at once.
type gauge struct {
	mu        sync.Mutex
	now, most int
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
	g.most = max(g.most, g.now)
}

// count makes an API server count the lists that it serves, each of which takes
// some time.
func (g *gauge) count(api *fleettest.API) {
	path := fleettest.PathOf("ConfigMap")
	api.Set(func(r *http.Request) http.HandlerFunc {
		if r.URL.Path != path {
			return nil
		}
		return func(w http.ResponseWriter, r *http.Request) {
			g.add(1)
			defer g.add(-1)
			time.Sleep(100 * time.Millisecond)
			api.Fake.ServeHTTP(w, r)
		}
	})
}

// labeled are clusters with labels that a test changes.
type labeled struct {
	t         *testing.T
	cc        *clustercache.ClusterCache
	directory *fleettest.Directory
	apis      map[string]*fleettest.API
}

// newLabeled runs clusters that have the label env, and the ConfigMap one.
func newLabeled(t *testing.T, env map[string]string) *labeled {
	t.Helper()
	w := &labeled{t: t, directory: fleettest.NewDirectory(), apis: map[string]*fleettest.API{}}
	for name, value := range env {
		w.apis[name] = fleettest.NewAPI(t, "uid-"+name)
		w.apis[name].Put("one", "1", nil)
		w.label(name, value)
	}
	w.cc = fleettest.Start(t, fleettest.Silent(w.directory))
	for name := range env {
		require.NoError(t, w.cc.Cluster(fleettest.Key(name)).Engage())
	}
	synctest.Wait()
	return w
}

// label sets the label env of a cluster.
func (w *labeled) label(name, env string) {
	config := w.apis[name].Config()
	w.directory.Answer(fleettest.Key(name), func() (resolver.Access, error) {
		access, err := resolver.NewAccess(config)
		return access.WithLabels(map[string]string{"env": env}), err
	})
}

// answerList answers the lists of ConfigMaps, given their continue token.
func answerList(api *fleettest.API, of func(token string) map[string]any) {
	path := fleettest.PathOf("ConfigMap")
	api.Set(func(r *http.Request) http.HandlerFunc {
		if r.URL.Path != path {
			return nil
		}
		return func(w http.ResponseWriter, r *http.Request) { fleettest.Answer(w, of(r.URL.Query().Get("continue"))) }
	})
}

// page returns a page with one ConfigMap.
func page(version, token, name string, value any) map[string]any {
	return map[string]any{
		"kind":       "ConfigMapList",
		"apiVersion": "v1",
		"metadata":   map[string]any{"resourceVersion": version, "continue": token},
		"items": []any{map[string]any{
			"metadata": map[string]any{
				"namespace":       "default",
				"name":            name,
				"uid":             "uid-" + name,
				"resourceVersion": "7",
			},
			"data": map[string]any{"value": value},
		}},
	}
}
