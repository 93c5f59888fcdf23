// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restarting_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// beginReal starts a process that uses real API servers.
func beginReal(t *testing.T, d *fleettest.Directory, path string) *operator {
	t.Helper()
	o := begin(t, d, path, func(o *clustercache.Options) {
		quick := fleettest.Quick(d)
		quick.Logger, quick.MetricsRegisterer, quick.Persist = o.Logger, o.MetricsRegisterer, o.Persist
		*o = quick
	})
	require.NoError(t, o.Cluster(fleettest.Key("a")).Engage())

	return o
}

// TestRealRestartAfterWhatHappenedMeanwhile: whatever happened to a cluster
// while no process ran, the first state that is shown is the server's.
func TestRealRestartAfterWhatHappenedMeanwhile(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	for _, away := range []struct {
		name string
		do   func(*testing.T, *testenv.Cluster)
	}{
		{"restored, and overtaken by new writes", restoredAndOvertaken},
		{"another cluster, further than the kept state", anotherCluster},
		{"restored as documented, with higher versions", restoredWithHigherVersions},
		{"rights revoked", rightsRevoked},
		{"a definition of another scope", anotherScope},
		{"a definition of another version", anotherVersion},
		{"a definition of another schema", anotherSchema},
	} {
		t.Run(away.name, func(t *testing.T) { away.do(t, c) })
	}
}

// put writes a ConfigMap.
func put(t *testing.T, c *testenv.Cluster, name, color string) {
	t.Helper()
	o := fleettest.ColoredConfigMap(name, color)
	if err := c.Client().Update(t.Context(), o); apierrors.IsNotFound(err) {
		require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap(name, color)))
	} else {
		require.NoError(t, err)
	}
}

// remove deletes a ConfigMap, which may not exist.
func remove(t *testing.T, c *testenv.Cluster, name string) {
	t.Helper()
	require.NoError(t, client.IgnoreNotFound(c.Client().Delete(t.Context(), fleettest.ColoredConfigMap(name, ""))))
}

// version returns the version that a server is at.
func version(t *testing.T, c *testenv.Cluster) int {
	t.Helper()
	var l corev1.ConfigMapList
	require.NoError(t, c.Client().List(t.Context(), &l, client.Limit(1)))
	v, err := strconv.Atoi(l.ResourceVersion)
	require.NoError(t, err)
	return v
}

// overtake writes until a server is well past a version.
func overtake(t *testing.T, c *testenv.Cluster, reached int) {
	t.Helper()
	for i := 0; version(t, c) < reached+50; i++ {
		put(t, c, "grows", strconv.Itoa(i))
	}
}

// kept has a process keep the ConfigMaps of a cluster, and returns its file.
func kept(t *testing.T, c *testenv.Cluster, d *fleettest.Directory) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "cache.db")
	o := beginReal(t, d, path)
	o.watch(fleettest.Key("a"), &corev1.ConfigMap{})
	require.Equal(t, namesIn(t, c.Client()), o.names(fleettest.Key("a")))
	o.end()
	return path
}

// showsTheServer has a process begin with a file. Its first state has to be the
// server's.
func showsTheServer(t *testing.T, c *testenv.Cluster, d *fleettest.Directory, path string) *operator {
	t.Helper()
	o := beginReal(t, d, path)
	o.watch(fleettest.Key("a"), &corev1.ConfigMap{})
	require.Equal(t, namesIn(t, c.Client()), o.names(fleettest.Key("a")))
	return o
}

// directory has the administrator's access to a cluster.
func directory(c *testenv.Cluster) *fleettest.Directory {
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), c.Config())
	return d
}

func restoredAndOvertaken(t *testing.T, c *testenv.Cluster) {
	for _, name := range []string{"stays", "changed", "gone", "again"} {
		put(t, c, name, "early")
	}
	snapshot, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	put(t, c, "changed", "undone")
	put(t, c, "late", "undone")
	remove(t, c, "gone")
	remove(t, c, "again")
	put(t, c, "again", "undone")
	path, reached := kept(t, c, directory(c)), version(t, c)

	require.NoError(t, c.Rollback(t.Context(), snapshot))
	overtake(t, c, reached)
	o := showsTheServer(t, c, directory(c), path)
	require.Positive(t, o.metric("fleetcache_persist_dropped_total"))
	o.end()
}

func restoredWithHigherVersions(t *testing.T, c *testenv.Cluster) {
	put(t, c, "changed", "early")
	put(t, c, "gone", "early")
	backup, err := c.Backup(t.Context())
	require.NoError(t, err)
	put(t, c, "changed", "undone")
	put(t, c, "late", "undone")
	remove(t, c, "gone")
	path := kept(t, c, directory(c))

	require.NoError(t, c.Restore(t.Context(), backup))
	o := showsTheServer(t, c, directory(c), path)
	require.Positive(t, o.metric("fleetcache_persist_dropped_total"))
	o.end()
}

func anotherCluster(t *testing.T, c *testenv.Cluster) {
	put(t, c, "of-the-one-before", "red")
	path, reached := kept(t, c, directory(c)), version(t, c)

	require.NoError(t, c.Wipe(t.Context()))
	overtake(t, c, reached)
	o := showsTheServer(t, c, directory(c), path)
	require.Zero(t, o.metric("fleetcache_restores_total"))
	require.Positive(t, o.metric("fleetcache_persist_dropped_total"))
	o.end()
}

// rightsRevoked: what a process was allowed to read, the next one is not.
func rightsRevoked(t *testing.T, c *testenv.Cluster) {
	put(t, c, "secret", "red")
	rules := append([]rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
	}, fleettest.ReadConfigMaps...)
	user, err := c.AddUser(t.Context(), "reader", rules...)
	require.NoError(t, err)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), user.Config())
	path := kept(t, c, d)

	for _, left := range [][]rbacv1.PolicyRule{nil, rules[:1]} { // nothing, and the cluster's identity alone
		require.NoError(t, user.Deny(t.Context()))
		if left != nil {
			require.NoError(t, user.Grant(t.Context(), left...))
		}
		o := beginReal(t, d, path)
		w, err := o.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), fleettest.Patience)
		require.True(t, apierrors.IsForbidden(w.WaitForSync(ctx)))
		cancel()
		require.Error(t, o.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.ConfigMapList{},
			clustercache.CacheOnly))
		put(t, c, "secret", fmt.Sprint("seen by nobody ", len(left)))
		require.NoError(t, user.Grant(t.Context(), rules...))
		require.Eventually(t, func() bool { return w.WaitForSync(t.Context()) == nil }, // it returns a refusal at once
			fleettest.Patience, 100*time.Millisecond)
		require.Equal(t, namesIn(t, c.Client()), o.names(fleettest.Key("a")))
		o.end()
	}
}

// part is a kind whose definition changes.
var part = schema.GroupVersionKind{Group: "away.example.com", Version: "v1", Kind: "Part"}

// install installs a definition, and creates an object of it.
func install(t *testing.T, c *testenv.Cluster, crd *apiextensionsv1.CustomResourceDefinition, of string) {
	t.Helper()
	require.NoError(t, c.InstallCRDs(t.Context(), crd))
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(part)
	u.SetName("one")
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		u.SetNamespace("default")
	}
	require.NoError(t, unstructured.SetNestedField(u.Object, of, "spec", "of"))
	admin, err := client.New(c.Config(), client.Options{}) // its mapper knows no earlier scope
	require.NoError(t, err)
	require.NoError(t, admin.Create(t.Context(), u))
}

// uninstall deletes a definition, and waits for its end.
func uninstall(t *testing.T, c *testenv.Cluster) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "parts." + part.Group}}
	require.NoError(t, client.IgnoreNotFound(c.Client().Delete(t.Context(), crd)))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(c.Client().Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
	}, fleettest.Patience, 20*time.Millisecond)
}

// parts returns the content of all objects of a version.
func parts(t *testing.T, r client.Reader, version string, opts ...client.ListOption) map[string]any {
	t.Helper()
	gvk := part
	gvk.Version = version
	l := fleettest.ListOf(gvk)
	require.NoError(t, r.List(t.Context(), l, opts...))
	out := map[string]any{}
	for _, o := range l.Items {
		o.SetManagedFields(nil)
		out[o.GetNamespace()+"/"+o.GetName()] = o.Object
	}
	return out
}

// keptParts has a process keep a kind, and returns its file.
func keptParts(t *testing.T, c *testenv.Cluster) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "cache.db")
	o := beginReal(t, directory(c), path)
	o.watch(fleettest.Key("a"), clustercache.Kind(part))
	require.NotEmpty(t, parts(t, c.Client(), part.Version))
	o.end()
	return path
}

// showsParts has a process begin with a file, and watch a version of the kind.
// Its first state has to be the server's.
func showsParts(t *testing.T, c *testenv.Cluster, path, version string) {
	t.Helper()
	gvk := part
	gvk.Version = version
	o := beginReal(t, directory(c), path)
	o.watch(fleettest.Key("a"), clustercache.Kind(gvk))
	require.Equal(t, parts(t, c.Client(), version),
		parts(t, o.Cluster(fleettest.Key("a")).Reader(), version, clustercache.CacheOnly))
	o.end()
}

func anotherScope(t *testing.T, c *testenv.Cluster) {
	defer uninstall(t, c)
	install(t, c, testenv.SimpleCRD(part.Group, part.Kind), "namespaced")
	path := keptParts(t, c)
	uninstall(t, c)
	install(t, c, testenv.SimpleCRD(part.Group, part.Kind, apiextensionsv1.ClusterScoped), "cluster")
	showsParts(t, c, path, "v1")
}

// anotherVersion: the kept version is not served any more, and not shown; the
// other one is.
func anotherVersion(t *testing.T, c *testenv.Cluster) {
	defer uninstall(t, c)
	crd := testenv.SimpleCRD(part.Group, part.Kind)
	install(t, c, crd, "v1")
	path := keptParts(t, c)

	change(t, c, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
		v2 := *spec.Versions[0].DeepCopy()
		v2.Name = "v2"
		spec.Versions[0].Served, spec.Versions[0].Storage = false, false
		spec.Versions = append(spec.Versions, v2)
	})
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(c.Client().List(t.Context(), fleettest.ListOf(part)))
	}, fleettest.Patience, 20*time.Millisecond)
	o := beginReal(t, directory(c), path)
	if w, err := o.Cluster(fleettest.Key("a")).Watch(t.Context(), clustercache.Kind(part)); err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		require.Error(t, w.WaitForSync(ctx))
		cancel()
	}
	require.Error(t, o.Cluster(fleettest.Key("a")).Reader().List(t.Context(), fleettest.ListOf(part),
		clustercache.CacheOnly))
	o.end()
	showsParts(t, c, path, "v2")
}

// change changes the definition.
func change(t *testing.T, c *testenv.Cluster, do func(*apiextensionsv1.CustomResourceDefinitionSpec)) {
	t.Helper()
	have := &apiextensionsv1.CustomResourceDefinition{}
	require.Eventually(t, func() bool {
		require.NoError(t, c.Client().Get(t.Context(), client.ObjectKey{Name: "parts." + part.Group}, have))
		do(&have.Spec)
		return c.Client().Update(t.Context(), have) == nil
	}, fleettest.Patience, 20*time.Millisecond)
}

// anotherSchema: a definition that is replaced by one of another schema, and
// one whose schema is changed, so that objects are served with other content
// under the version that they had.
func anotherSchema(t *testing.T, c *testenv.Cluster) {
	defer uninstall(t, c)
	install(t, c, testenv.SimpleCRD(part.Group, part.Kind), "any")
	path := keptParts(t, c)
	uninstall(t, c)
	strict := testenv.SimpleCRD(part.Group, part.Kind)
	strict.Spec.Versions[0].Schema.OpenAPIV3Schema = schemaOf("of")
	install(t, c, strict, "strict")
	showsParts(t, c, path, "v1")

	change(t, c, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
		spec.Versions[0].Schema.OpenAPIV3Schema = schemaOf("of", "added")
	})
	require.Eventually(t, func() bool {
		one, _ := parts(t, c.Client(), "v1")["default/one"].(map[string]any)
		added, _, _ := unstructured.NestedString(one, "spec", "added")
		return added == "by default"
	}, fleettest.Patience, 20*time.Millisecond)
	showsParts(t, c, path, "v1")
}

// schemaOf is a schema of a spec with these fields, which have a default, and no
// other.
func schemaOf(fields ...string) *apiextensionsv1.JSONSchemaProps {
	spec := apiextensionsv1.JSONSchemaProps{
		Type:       "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{},
	}
	for _, f := range fields {
		spec.Properties[f] = apiextensionsv1.JSONSchemaProps{
			Type:    "string",
			Default: &apiextensionsv1.JSON{Raw: []byte(`"by default"`)},
		}
	}
	return &apiextensionsv1.JSONSchemaProps{
		Type:       "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
	}
}
