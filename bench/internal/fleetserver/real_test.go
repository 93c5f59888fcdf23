// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/bench/internal/fleetserver"
	"github.com/fleetcache/fleetcache/bench/internal/objects"
	"github.com/fleetcache/fleetcache/bench/measure"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

// site is a server, a real one or one of a fleet, with the same objects.
type site struct {
	config *rest.Config
	client *http.Client
	// change changes the objects that the fleet changes first, in its order.
	change func()
	// forget makes the server lose its history.
	forget func() error
}

const few = 7

func configOf(c measure.Cluster) *rest.Config {
	return &rest.Config{
		Host:            c.Host,
		BearerToken:     c.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CA},
	}
}

func newSite(t *testing.T, config *rest.Config, change func(), forget func() error) *site {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return &site{
		config: config,
		client: c,
		change: change,
		forget: forget,
	}
}

func newFleet(t *testing.T, o fleetserver.Options) *fleetserver.Fleet {
	t.Helper()
	f, err := fleetserver.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// sites returns both servers.
func sites(t *testing.T) (real, ours *site) {
	t.Helper()
	f := newFleet(t, fleetserver.Options{Clusters: 1, Objects: few, Bookmarks: 500 * time.Millisecond})
	var changed []measure.Mark
	ours = newSite(t, configOf(f.Clusters()[0]), func() {
		changed = nil
		for range objects.Mix {
			changed = append(changed, f.Change()...)
		}
	}, f.Forget)
	cluster := testenv.Start(t, 1)[0]
	// The objects of the first cluster of a fleet.
	fill(t, cluster.Client(), objects.Generator{})
	real = newSite(t, cluster.Config(), func() {
		for _, m := range changed {
			touch(t, cluster.Client(), m)
		}
	}, func() error { return cluster.Restart(t.Context()) })

	return real, ours
}

func touch(t *testing.T, c client.Client, m measure.Mark) {
	t.Helper()
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: m.Kind.Group, Version: m.Kind.Version, Kind: m.Kind.Kind})
	o.SetNamespace(m.Namespace)
	o.SetName(m.Name)
	patch := client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"`+objects.RevisionAnnotation+`":"`+m.ResourceVersion+`"}}}`))
	require.NoError(t, c.Patch(t.Context(), o, patch))
}

func fill(t *testing.T, c client.Client, g objects.Generator) {
	t.Helper()
	for i := range objects.Teams {
		require.NoError(t, c.Create(t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: objects.NamespaceOf(i)},
		}))
	}
	for _, k := range objects.Mix {
		for i := range few {
			o := k.New(g, i)
			status, ok := o.DeepCopyObject().(client.Object)
			require.True(t, ok)
			require.NoError(t, c.Create(t.Context(), o))
			if k.GVK.Kind == "ConfigMap" || k.GVK.Kind == "Secret" {
				continue
			}
			status.SetResourceVersion(o.GetResourceVersion())
			require.NoError(t, c.Status().Update(t.Context(), status))
		}
	}
}

// seen is what a client sees of a response or of a frame of a stream, without
// what differs between two servers.
type seen struct {
	Code        int
	Media, Type string // of the body, of the event
	Kind        string // with its version
	Names       []string
	ItemKinds   []string
	Continues   bool
	Remaining   any
	Reason      string
	Final       bool // the bookmark that ends the initial events
}

// known has the kinds of metadata, too.
var known = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(metav1.AddMetaToScheme(s))
	return s
}()

var proto = protobuf.NewSerializer(known, known)

// tree decodes an object.
func tree(t *testing.T, media string, body []byte) map[string]any {
	t.Helper()
	out := map[string]any{}
	if !strings.HasPrefix(media, runtime.ContentTypeProtobuf) {
		require.NoError(t, json.Unmarshal(body, &out), string(body))
		return out
	}
	o, gvk, err := proto.Decode(body, nil, nil)
	require.NoError(t, err)
	out, err = runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	require.NoError(t, err)
	out["apiVersion"], out["kind"] = gvk.ToAPIVersionAndKind()

	return out
}

func look(out map[string]any) seen {
	metadata, _ := out["metadata"].(map[string]any)
	s := seen{Kind: fmt.Sprint(out["apiVersion"], " ", out["kind"])}
	s.Reason, _ = out["reason"].(string)
	s.Continues, s.Remaining = metadata["continue"] != nil, metadata["remainingItemCount"]
	if s.Remaining != nil {
		s.Remaining = fmt.Sprint(s.Remaining)
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	s.Final = annotations[metav1.InitialEventsAnnotationKey] == "true"
	items, isList := out["items"].([]any)
	if !isList && metadata["name"] != nil {
		s.Names = []string{fmt.Sprint(metadata["namespace"], "/", metadata["name"])}
	}
	for _, item := range items {
		item, _ := item.(map[string]any)
		metadata, _ := item["metadata"].(map[string]any)
		s.Names = append(s.Names, fmt.Sprint(metadata["namespace"], "/", metadata["name"]))
		s.ItemKinds = append(s.ItemKinds, fmt.Sprint(item["apiVersion"], " ", item["kind"]))
	}

	return s
}

func (s *site) open(t *testing.T, path, accept string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.config.Host+path, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Accept", accept)
	resp, err := s.client.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(t, 2, resp.ProtoMajor)

	return resp
}

func (s *site) get(t *testing.T, path, accept string) (int, string, map[string]any) {
	t.Helper()
	resp := s.open(t, path, accept)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	media := resp.Header.Get("Content-Type")
	return resp.StatusCode, media, tree(t, media, body)
}

func (s *site) look(t *testing.T, path, accept string) seen {
	t.Helper()
	code, media, body := s.get(t, path, accept)
	out := look(body)
	out.Code, out.Media = code, media
	return out
}

// version returns the present version of a resource.
func (s *site) version(t *testing.T, path string) string {
	t.Helper()
	_, _, body := s.get(t, path, runtime.ContentTypeJSON)
	metadata, _ := body["metadata"].(map[string]any)
	return fmt.Sprint(metadata["resourceVersion"])
}

// accepts are the representations that the measured clients ask for.
var accepts = map[string]string{
	"JSON":          "application/json",
	"protobuf":      "application/vnd.kubernetes.protobuf,application/json",
	"metadata":      "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
	"list":          "application/json;q=0.9,application/json",
	"metadata list": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
	"metadata in protobuf": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
	"list in protobuf": "application/vnd.kubernetes.protobuf,application/json",
	"metadata list in protobuf": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;" +
		"v=v1,application/json",
}

const (
	podPath        = "/api/v1/pods"
	deploymentPath = "/apis/apps/v1/deployments"
)

func TestFleetAnswersAsARealAPIServer(t *testing.T) {
	real, ours := sites(t)
	name := objects.Generator{}.Pod(3).Name
	namespace := objects.Generator{}.Pod(3).Namespace
	for _, path := range []string{
		podPath, deploymentPath, "/apis/apps/v1/replicasets",
		"/api/v1/namespaces/" + namespace + "/secrets",
		"/api/v1/namespaces/" + namespace + "/configmaps",
		podPath + "?limit=500&resourceVersion=0",
		podPath + "?limit=3",
		podPath + "?resourceVersion=0&resourceVersionMatch=NotOlderThan",
		podPath + "?fieldSelector=metadata.name%3D" + name,
		podPath + "?fieldSelector=metadata.name%3Dfleetcache-history&limit=1",
		podPath + "?resourceVersion=invalid",
		podPath + "?continue=invalid",
		"/api/v1/namespaces/" + namespace + "/pods/" + name,
		"/api/v1/namespaces/" + namespace + "/pods/checkout-absent",
		"/api/v1/namespaces/kube-system",
	} {
		for representation, accept := range accepts {
			one := strings.Contains(path, "/pods/") || strings.HasSuffix(path, "system")
			if one == strings.Contains(representation, "list") {
				continue // no client asks for that
			}
			want := real.look(t, path, accept)
			require.Equal(t, want, ours.look(t, path, accept), "%s in %s", path, representation)
		}
	}

	for _, s := range []*site{real, ours} {
		_, _, page := s.get(t, podPath+"?limit=3", accepts["JSON"])
		token, _, err := unstructured.NestedString(page, "metadata", "continue")
		require.NoError(t, err)
		last := s.look(t, podPath+"?limit=500&continue="+token, accepts["JSON"])
		require.Len(t, last.Names, few-3)
		require.False(t, last.Continues)
	}
}

func TestFleetHasTheObjectsThatARealAPIServerStores(t *testing.T) {
	real, ours := sites(t)
	for _, k := range objects.Mix {
		path := "/api/v1/"
		if k.GVK.Group != "" {
			path = "/apis/" + k.GVK.Group + "/v1/"
		}
		for i := range few {
			o := k.New(objects.Generator{}, i)
			path := path + "namespaces/" + o.GetNamespace() + "/" + k.Resource + "/" + o.GetName()
			_, _, want := real.get(t, path, accepts["JSON"])
			_, _, have := ours.get(t, path, accepts["JSON"])
			for _, tree := range []map[string]any{want, have} {
				managed, _, _ := unstructured.NestedSlice(tree, "metadata", "managedFields")
				text, err := json.Marshal(managed)
				require.NoError(t, err)
				t.Log(k.Resource, len(managed), len(text))
				for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
					_, ok, _ := unstructured.NestedFieldNoCopy(tree, "metadata", field)
					require.True(t, ok, field)
					unstructured.RemoveNestedField(tree, "metadata", field)
				}
			}
			require.Equal(t, want, have)
		}
	}
}

// follow returns the frames of a watch until its end, without repetitions.
func (s *site) follow(t *testing.T, path, accept string, began func()) []seen {
	t.Helper()
	resp := s.open(t, path, accept)
	media := resp.Header.Get("Content-Type")
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		out := look(tree(t, media, body))
		out.Code, out.Media = resp.StatusCode, media
		return []seen{out}
	}
	began()
	frames := []seen{}
	next := json.NewDecoder(resp.Body)
	framed := protobuf.LengthDelimitedFramer.NewFrameReader(resp.Body)
	for {
		event := metav1.WatchEvent{}
		var err error
		if strings.HasPrefix(media, runtime.ContentTypeProtobuf) {
			frame := make([]byte, 1<<20)
			var n int
			if n, err = framed.Read(frame); err == nil {
				_, _, err = protobuf.NewRawSerializer(known, known).Decode(frame[:n], nil, &event)
			}
		} else {
			err = next.Decode(&event)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		out := look(tree(t, media, event.Object.Raw))
		out.Media, out.Type = media, event.Type
		frames = append(frames, out)
	}

	return slices.CompactFunc(frames, func(a, b seen) bool { return reflect.DeepEqual(a, b) })
}

func TestFleetStreamsAsARealAPIServer(t *testing.T) {
	real, ours := sites(t)
	const (
		stream = "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan" +
			"&timeoutSeconds=4"
		resume = "?watch=true&allowWatchBookmarks=true&timeoutSeconds=4&resourceVersion="
	)
	none := func() {}
	for _, c := range []struct {
		name    string
		query   func(version string) string
		changes bool
		frames  int // at least
	}{
		{"a streamed list with changes", func(string) string { return stream }, true, few + 3},
		{"a resumed watch with changes", func(v string) string { return resume + v }, true, 2},
		{"an idle watch", func(v string) string { return resume + v }, false, 0},
		{"the history question", func(string) string {
			return stream + "&fieldSelector=metadata.name%3Dfleetcache-history"
		}, false, 1},
		{"a version that is no number", func(string) string { return resume + "invalid" }, false, 1},
		{"a streamed list of unknown age", func(string) string {
			return "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&timeoutSeconds=4"
		}, false, 1},
		{"a streamed list without bookmarks", func(string) string {
			return "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=4"
		}, false, 1},
		{"a watch with a match", func(string) string {
			return "?watch=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=4"
		}, false, 1},
		{"any version", func(string) string { return resume + "0" }, false, few},
	} {
		representations := []string{"JSON"}
		if c.changes {
			representations = append(representations, "protobuf", "metadata", "metadata in protobuf")
		}
		for _, representation := range representations {
			var frames [2][]seen
			for i, s := range []*site{ours, real} {
				changes := none
				if c.changes {
					changes = s.change
				}
				query := c.query(s.version(t, podPath+"?limit=1"))
				frames[i] = s.follow(t, podPath+query, accepts[representation], changes)
				if !c.changes {
					// A real server sends no bookmark where nothing has
					// happened since the watch began.
					frames[i] = slices.DeleteFunc(frames[i], func(f seen) bool {
						return f.Type == "BOOKMARK" && !f.Final
					})
				}
			}
			require.Equal(t, frames[1], frames[0], "%s in %s", c.name, representation)
			require.GreaterOrEqual(t, len(frames[0]), c.frames, c.name)
		}
	}
}

func TestAWatchOfAForgottenHistoryExpires(t *testing.T) {
	real, ours := sites(t)
	for _, s := range []*site{ours, real} {
		s.change()
		require.NoError(t, s.forget())
	}
	for _, representation := range []string{"JSON", "protobuf", "metadata", "metadata in protobuf"} {
		var frames [2][]seen
		for i, s := range []*site{ours, real} {
			path := podPath + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=4&resourceVersion=1"
			frames[i] = s.follow(t, path, accepts[representation], func() {})
		}
		require.Equal(t, frames[1], frames[0], representation)
		require.Len(t, frames[0], 1)
		require.Equal(t, string(metav1.StatusReasonExpired), frames[0][0].Reason)
	}
}
