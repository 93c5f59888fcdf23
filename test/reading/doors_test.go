// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package reading_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// house is a cluster whose ConfigMaps of one namespace are selected.
type house struct {
	*testing.T

	cc   *clustercache.ClusterCache
	in   client.InNamespace
	form selectorForm
	// await waits until a condition holds.
	await func(func() bool)
}

// names lists by a reader, in every form of the list.
func (h *house) names(r client.Reader, opts ...client.ListOption) []string {
	h.Helper()
	var found []string
	for shape, fresh := range configMapForms() {
		_, list := fresh()
		list.SetContinue("of another list")
		require.NoError(h, r.List(h.Context(), list, append(opts, h.form.option, h.in)...), shape)
		require.Empty(h, list.GetContinue(), shape)
		names := namesIn(h.T, list)
		require.True(h, found == nil || slices.Equal(names, found), "%s: %v, another form: %v", shape, names, found)
		found = names
	}
	return found
}

// namesIn returns the names in a list, sorted; never nil.
func namesIn(t *testing.T, list client.ObjectList) []string {
	t.Helper()
	items, err := meta.ExtractList(list)
	require.NoError(t, err)
	names := make([]string, 0, len(items))
	for _, o := range items {
		names = append(names, o.(client.Object).GetName())
	}
	slices.Sort(names)
	return names
}

// clientDoors hand out clients, by which objects are listed and deleted.
var clientDoors = map[string]func(h *house) client.Client{
	"clustercache.Cluster.Client": func(h *house) client.Client {
		c, err := h.cc.Cluster(fleettest.Key("a")).Client()
		require.NoError(h, err)
		return c
	},
	"clustercache.Cluster.LiveClient": func(h *house) client.Client {
		c, err := h.cc.Cluster(fleettest.Key("a")).LiveClient()
		require.NoError(h, err)
		return c
	},
	"multicluster.Clusters.Cluster": func(h *house) client.Client {
		c, err := multicluster.New(h.cc, multicluster.Options{OnlyWatched: true}).Cluster(fleettest.Key("a"))
		require.NoError(h, err)
		return c.GetClient()
	},
}

// readDoors are the other ways to read by a selector. Each returns the sorted
// names of what it selects.
var readDoors = map[string]func(h *house, opts ...client.ListOption) []string{
	"clustercache.Cluster.Reader": func(h *house, opts ...client.ListOption) []string {
		return h.names(h.cc.Cluster(fleettest.Key("a")).Reader(), opts...)
	},
	"multicluster.remoteCache.List": func(h *house, opts ...client.ListOption) []string {
		c, err := multicluster.New(h.cc, multicluster.Options{OnlyWatched: true}).Cluster(fleettest.Key("a"))
		require.NoError(h, err)
		return h.names(c.GetCache(), opts...)
	},
	"multicluster.remote.GetAPIReader": func(h *house, opts ...client.ListOption) []string {
		c, err := multicluster.New(h.cc, multicluster.Options{}).Cluster(fleettest.Key("a"))
		require.NoError(h, err)
		return h.names(c.GetAPIReader(), opts...)
	},
	"fleet.List": func(h *house, opts ...client.ListOption) []string {
		names := []string{}
		for item, err := range fleet.List(h.Context(), h.cc, &corev1.ConfigMap{}, append(opts, h.form.option, h.in,
			fleet.Options{Clusters: []client.ObjectKey{fleettest.Key("a")}})...) {
			require.NoError(h, err)
			names = append(names, item.Metadata().GetName())
		}
		slices.Sort(names)
		return names
	},
	"fleet.ByCluster": func(h *house, opts ...client.ListOption) []string {
		names := []string{}
		for answer, err := range fleet.ByCluster(h.Context(), h.cc, clustercache.Kind(fleettest.ConfigMap),
			append(opts, h.form.option, h.in, fleet.Options{Clusters: []client.ObjectKey{fleettest.Key("a")}})...) {
			require.NoError(h, err)
			for item := range answer.Items() {
				names = append(names, item.Metadata().GetName())
			}
		}
		slices.Sort(names)
		return names
	},
}

// watchDoors begin to watch what a selector selects. Each calls seen with the
// name of each object that is delivered first.
var watchDoors = map[string]func(h *house, seen func(name string)) error{
	"clustercache.Cluster.Watch": func(h *house, seen func(string)) error {
		w, err := h.cc.Cluster(fleettest.Key("a")).Watch(h.Context(), &corev1.ConfigMap{}, h.form.option, h.in)
		if err == nil {
			_, err = w.AddEventHandler(informerpool.HandlerFunc(func(e informerpool.Event) {
				seen(e.Object().GetName())
			}))
		}
		return err
	},
	"clustercache.Target.Options": func(h *house, seen func(string)) error {
		d, err := h.cc.Declare(h.Context(), fleettest.Owner(string(h.in)),
			fleettest.Target("a", "ConfigMap", h.form.option, h.in))
		if err != nil {
			return err
		}
		// Its key is one that Watch makes of the same selector.
		kind := clustercache.Kind(fleettest.ConfigMap)
		w, err := h.cc.Cluster(fleettest.Key("a")).Watch(h.Context(), kind, h.form.option, h.in)
		require.NoError(h, err)
		s := w.Status()
		require.Equal(h, []status.WatchKey{{
			Cluster: s.Cluster, GVK: s.GVK, Namespace: s.Namespace,
			LabelSelector: s.LabelSelector, FieldSelector: s.FieldSelector,
		}}, d.Added)
		_, err = w.AddEventHandler(informerpool.HandlerFunc(func(e informerpool.Event) { seen(e.Object().GetName()) }))
		return err
	},
	"events.Selection.Options": func(h *house, seen func(string)) error {
		return h.subscribe(seen, events.Selection{
			Kinds: fleettest.ConfigMaps, Options: []client.ListOption{h.form.option, h.in}, Watch: true,
		})
	},
	"events.NarrowedKind.Options": func(h *house, seen func(string)) error {
		return h.subscribe(seen, events.Selection{
			Narrowed: []events.NarrowedKind{{
				Kind: &corev1.ConfigMap{}, Options: []client.ListOption{h.form.option, h.in},
			}},
			Watch: true,
		})
	},
	"of what others watch": func(h *house, seen func(string)) error {
		_, err := h.cc.Cluster(fleettest.Key("a")).Watch(h.Context(), &corev1.ConfigMap{}, h.in)
		require.NoError(h, err)
		return h.subscribe(seen, events.Selection{
			Kinds: fleettest.ConfigMaps, Options: []client.ListOption{h.form.option, h.in},
		})
	},
}

func (h *house) subscribe(seen func(string), spec events.Selection) error {
	s, err := h.cc.Subscribe(spec, func(e events.Object) { seen(e.Object().GetName()) })
	if err == nil {
		s.Start()
		h.Cleanup(s.Stop)
	}
	return err
}

// crowd is a set of names that goroutines fill.
type crowd struct {
	mu    sync.Mutex
	names map[string]struct{}
}

func (c *crowd) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[name] = struct{}{}
}

func (c *crowd) sorted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, slices.Sorted(maps.Keys(c.names))...)
}

// passesEveryDoor passes the form through every door, each of which has to
// select the objects with these names. seed makes the objects of the house exist.
func (h *house) passesEveryDoor(want []string, seed func()) {
	h.Helper()
	clients := map[string]client.Client{}
	for name, door := range clientDoors {
		clients[name] = door(h)
	}
	reads := func(when string, opts ...client.ListOption) {
		for name, door := range readDoors {
			require.Equal(h, want, door(h, opts...), "%s %s", name, when)
		}
		for name, c := range clients {
			if name != "clustercache.Cluster.LiveClient" || len(opts) == 0 {
				require.Equal(h, want, h.names(c, opts...), "%s %s", name, when)
			}
		}
	}
	reads("without a watch")
	reads("live", clustercache.LiveOnly)

	shown := map[string]*crowd{}
	for name, door := range watchDoors {
		shown[name] = &crowd{names: map[string]struct{}{}}
		if err := door(h, shown[name].add); h.form.refused {
			require.ErrorContains(h, err, "selects nothing", name)
		} else {
			require.NoError(h, err, name)
		}
	}
	wide, err := h.cc.Cluster(fleettest.Key("a")).Watch(h.Context(), &corev1.ConfigMap{}, h.in)
	require.NoError(h, err)
	require.NoError(h, wide.WaitForSync(h.Context()))
	reads("with a watch")
	reads("cached", clustercache.CacheOnly)
	for name, c := range shown {
		if !h.form.refused {
			h.await(func() bool { return len(c.sorted()) >= len(want) })
			require.Equal(h, want, c.sorted(), name)
		}
	}

	all := h.left()
	for name, c := range clients {
		seed()
		require.NoError(h, c.DeleteAllOf(h.Context(), &corev1.ConfigMap{}, h.in, h.form.option, client.DryRunAll), name)
		require.Equal(h, all, h.left(), "%s, dry run", name)
		require.NoError(h, c.DeleteAllOf(h.Context(), &corev1.ConfigMap{}, h.in, h.form.option), name)
		kept := slices.DeleteFunc(slices.Clone(all), func(o string) bool { return slices.Contains(want, o) })
		require.Equal(h, kept, h.left(), name)
	}
	for name, c := range shown {
		if !h.form.refused {
			require.Equal(h, want, c.sorted(), "%s, later", name)
		}
	}
}

// left returns the names of all objects that the API server has.
func (h *house) left() []string {
	h.Helper()
	list := &corev1.ConfigMapList{}
	require.NoError(h, h.cc.Cluster(fleettest.Key("a")).Reader().List(h.Context(), list, h.in, clustercache.LiveOnly))
	return namesIn(h.T, list)
}

// elsewhere are the other functions, methods and fields through which selectors
// pass, and why no door of this table leads there.
var elsewhere = map[string]string{
	"clustercache.reader.List":          "of the Reader",
	"clustercache.reader.ListPacked":    "fleet.List calls it",
	"clustercache.cachedClient.List":    "of the Client",
	"clustercache.Cluster.WatchAndRead": "its Reader is that of the cluster",

	"clustercache.ReadMode.ApplyToList":     optionOfReads,
	"clustercache.MaxStaleness.ApplyToList": optionOfReads,
	"clustercache.NotOlderThan.ApplyToList": optionOfReads,
	"clustercache.Origin.ApplyToList":       optionOfReads,
	"clustercache.forApply.ApplyToList":     optionOfReads,
	"fleet.Options.ApplyToList":             optionOfReads,
	"fleet.Total.ApplyToList":               optionOfReads,

	"clustercache.Target.ClusterSelector":             selectsClusters,
	"events.Selection.ClusterSelector":                selectsClusters,
	"fleet.Options.ClusterSelector":                   selectsClusters,
	"controller.ClusterSourceOptions.ClusterSelector": selectsClusters,
	"controller.Builder.InClustersMatching":           selectsClusters,
	"resolver.Select":                                 selectsClusters,
	"resolver.InHub":                                  "hands the hub's client to a convention, with HubOptions",
	"resolver.HubOptions.Selector":                    "refused, see TestHazardHubSelectorOfNothing",
	"resolver.ReferenceOptions.SecretSelector":        "refused, see TestHazardHubSelectorOfNothing",

	"clustercache.TargetError.ClusterSelector": reports,
	"status.WatchKey.LabelSelector":            reports,
	"status.WatchKey.FieldSelector":            reports,
	"status.Watch.LabelSelector":               reports,
	"status.Watch.FieldSelector":               reports,

	"informerpool.Key.LabelSelector": isText,
	"informerpool.Key.FieldSelector": isText,
	"sharding.Options.Selector":      "a mark of the group that is compared, and selects nothing",
	"sharding.GroupError.Selector":   "the mark of the other group",
	"watchset.Entry.LabelSelector":   isText,
	"watchset.Entry.FieldSelector":   isText,
	"informerpool.Query.Labels":      "the selector itself matches cached objects; its text is not used",

	"controller.PerCluster":           handsOn,
	"controller.Builder.Complete":     handsOn,
	"controller.PerClusterHandler":    handsOn,
	"controller.Selecting":            "the options are those of an events.NarrowedKind",
	"controller.mappingClient.List":   handsOn,
	"multicluster.Provider.Get":       "the clusters are those of multicluster.Clusters.Cluster",
	"clustercachetest.Cluster.Client": "the administrator's own client, of controller-runtime",

	"clusterapi.ClusterCache.GetClient":         withinLimits,
	"clusterapi.ClusterCache.GetReader":         withinLimits,
	"clusterapi.ClusterCache.GetUncachedClient": withinLimits,
	"clusterapi.limitedClient.List":             withinLimits,
}

const (
	optionOfReads   = "an option that selects no objects"
	selectsClusters = "selects clusters, by their labels; see TestHazardSelectorOfNoClusterSelectsAll"
	reports         = "reports what was selected"
	isText          = "a text, which cannot select nothing: empty, it is documented to select everything"
	handsOn         = "hands out the Client of the ClusterCache"
	withinLimits    = "a module of its own, whose clients are those of multicluster, within a limit"
)

// selectorTypes are what selects objects; clientTypes have methods that take it.
var (
	selectorTypes = []string{
		"sigs.k8s.io/controller-runtime/pkg/client.ListOption",
		"sigs.k8s.io/controller-runtime/pkg/client.ListOptions",
		"sigs.k8s.io/controller-runtime/pkg/client.DeleteAllOfOption",
		"sigs.k8s.io/controller-runtime/pkg/client.DeleteAllOfOptions",
		"k8s.io/apimachinery/pkg/labels.Selector",
		"k8s.io/apimachinery/pkg/fields.Selector",
		"k8s.io/apimachinery/pkg/apis/meta/v1.LabelSelector",
	}
	clientTypes = []string{
		"sigs.k8s.io/controller-runtime/pkg/client.Client",
		"sigs.k8s.io/controller-runtime/pkg/client.Reader",
		"sigs.k8s.io/controller-runtime/pkg/client.Writer",
		"sigs.k8s.io/controller-runtime/pkg/client.WithWatch",
		"sigs.k8s.io/controller-runtime/pkg/cluster.Cluster",
	}
)

// TestTableOfDoorsIsComplete reads the source of the packages that operators
// import: a function, method or field through which a selector passes is a row
// of the tables.
func TestTableOfDoorsIsComplete(t *testing.T) {
	listed := slices.Collect(maps.Keys(elsewhere))
	listed = slices.AppendSeq(listed, maps.Keys(clientDoors))
	listed = slices.AppendSeq(listed, maps.Keys(readDoors))
	listed = slices.AppendSeq(listed, maps.Keys(watchDoors))
	listed = slices.DeleteFunc(listed, func(door string) bool { return door == "of what others watch" })
	slices.Sort(listed)
	require.Equal(t, selectorsIn(t, "clustercache", "informerpool", "gc"), listed)
}

// selectorsIn returns what passes selectors on in packages that are not
// internal.
func selectorsIn(t *testing.T, dirs ...string) (found []string) {
	t.Helper()
	for _, dir := range dirs {
		root := filepath.Join("../..", dir)
		require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "internal" || d.Name() == "testdata"):
				return fs.SkipDir
			case !d.IsDir() && strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, "_test.go"):
				file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
				require.NoError(t, err)
				found = append(found, doorsOf(file)...)
			}
			return nil
		}))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// source is a file with the names of its imports.
type source struct {
	*ast.File

	imports map[string]string // name → path
}

// doorsOf returns the exported functions, methods and fields of a file through
// which selectors pass. Methods of types that are not exported count: values of
// them are handed out as interfaces.
func doorsOf(file *ast.File) (found []string) {
	s := source{file, map[string]string{}}
	for _, i := range file.Imports {
		at, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(at)
		if i.Name != nil {
			name = i.Name.Name
		}
		s.imports[name] = at
	}
	add := func(exported bool, parts ...string) {
		if exported {
			found = append(found, strings.Join(append([]string{file.Name.Name}, parts...), "."))
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil {
				add(n.Name.IsExported() && s.passes(n.Type, false), n.Name.Name)
			} else {
				add(n.Name.IsExported() && s.passes(n.Type, false), receiver(n.Recv.List[0].Type), n.Name.Name)
			}
			return false
		case *ast.TypeSpec:
			var members *ast.FieldList
			switch of := n.Type.(type) {
			case *ast.StructType:
				members = of.Fields
			case *ast.InterfaceType:
				members = of.Methods
			default:
				return true
			}
			for _, f := range members.List {
				for _, name := range f.Names {
					text, _ := f.Type.(*ast.Ident)
					named := text != nil && text.Name == "string" && strings.HasSuffix(name.Name, "Selector")
					exported := n.Name.IsExported() && name.IsExported()
					add(exported && (named || s.passes(f.Type, false)), n.Name.Name, name.Name)
				}
			}
			return false
		}
		return true
	})
	return found
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	for {
		switch of := e.(type) {
		case *ast.StarExpr:
			e = of.X
		case *ast.IndexExpr:
			e = of.X
		case *ast.IndexListExpr:
			e = of.X
		default:
			return of.(*ast.Ident).Name
		}
	}
}

// passes reports whether a value of the type takes selectors, or, as a result,
// hands out clients: a parameter that is a function is handed its parameters.
func (s source) passes(e ast.Expr, out bool) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			for _, f := range n.Params.List {
				if callback, ok := f.Type.(*ast.FuncType); ok {
					found = found || s.handsOut(callback.Params)
				} else {
					found = found || s.passes(f.Type, false)
				}
			}
			found = found || s.handsOut(n.Results)
			return false
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok {
				name := s.imports[of.Name] + "." + n.Sel.Name
				found = found || slices.Contains(selectorTypes, name) || out && slices.Contains(clientTypes, name)
			}
			return false
		}
		return true
	})
	return found
}

func (s source) handsOut(fields *ast.FieldList) bool {
	return fields != nil && slices.ContainsFunc(fields.List, func(f *ast.Field) bool { return s.passes(f.Type, true) })
}
