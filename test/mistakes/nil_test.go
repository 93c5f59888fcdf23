// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package mistakes

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/conditions"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
	"github.com/fleetcache/fleetcache/clustercache/remote"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/inventory"
	"github.com/fleetcache/fleetcache/clustercache/resolver/settable"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/clustercache/watchset"
	"github.com/fleetcache/fleetcache/gc"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// verdict is what a function does if it gets nothing but zero values.
type verdict int

const (
	refuses verdict = iota // with an error, or else a panic, that names what is required
	accepts                // has a meaning for it, or nothing that can be nil
)

// functions are the exported functions of the public packages. The test
// TestTableOfFunctionsIsComplete keeps it complete.
var functions = map[string]struct {
	f       any
	verdict verdict
}{
	"clustercache.IsWaiting":        {clustercache.IsWaiting, accepts},
	"clustercache.Kind":             {clustercache.Kind, accepts},
	"clustercache.New":              {clustercache.New, refuses},
	"clustercache.OwnerExists":      {clustercache.OwnerExists, refuses},
	"clustercache.OwnerOf":          {clustercache.OwnerOf, refuses},
	"clustercache.ReasonOf":         {clustercache.ReasonOf, accepts},
	"clustercache.SetupWithManager": {clustercache.SetupWithManager, refuses},

	"bolt.Open": {bolt.Open, refuses},

	"clustercachetest.IsInterrupted": {clustercachetest.IsInterrupted, accepts},
	"clustercachetest.New":           {clustercachetest.New, refuses},
	"clustercachetest.NewSharding":   {clustercachetest.NewSharding, accepts},
	"clustercachetest.Resource":      {clustercachetest.Resource, accepts},
	"clustercachetest.Status":        {clustercachetest.Status, accepts},
	"clustercachetest.Verb":          {clustercachetest.Verb, accepts},
	"clustercachetest.Write":         {clustercachetest.Write, accepts},

	"conditions.ClusterReady":  {conditions.ClusterReady, accepts},
	"conditions.WatchesSynced": {conditions.WatchesSynced[status.Watch], accepts},

	"controller.ClusterFromContext":     {controller.ClusterFromContext, accepts},
	"controller.ClusterOf":              {controller.ClusterOf, accepts},
	"controller.ClusterSource":          {controller.ClusterSource[int], refuses},
	"controller.DeclarerSource":         {controller.DeclarerSource[int], refuses},
	"controller.EnqueueCluster":         {controller.EnqueueCluster, accepts},
	"controller.EnqueueClusterOf":       {controller.EnqueueClusterOf, accepts},
	"controller.EnqueueDeclarer":        {controller.EnqueueDeclarer, refuses},
	"controller.EnqueueLabelled":        {controller.EnqueueLabelled, refuses},
	"controller.EnqueueObject":          {controller.EnqueueObject, accepts},
	"controller.EnqueueOwner":           {controller.EnqueueOwner, refuses},
	"controller.FairQueue":              {controller.FairQueue, accepts},
	"controller.FairQueueOf":            {controller.FairQueueOf[int], refuses},
	"controller.NewControllerManagedBy": {controller.NewControllerManagedBy, accepts}, // Build refuses
	"controller.ObjectSource":           {controller.ObjectSource[int], refuses},
	"controller.PerCluster":             {controller.PerCluster, refuses},
	"controller.PerClusterHandler":      {controller.PerClusterHandler[client.Object], refuses},
	"controller.Selecting":              {controller.Selecting, accepts},
	"controller.WhileOwned":             {controller.WhileOwned[int], refuses},
	"controller.WithPredicates":         {controller.WithPredicates[client.Object], accepts},

	"fleet.ByCluster": {fleet.ByCluster[*corev1.Pod], refuses},
	"fleet.List":      {fleet.List[*corev1.Pod], refuses},

	"gc.New": {gc.New[int, int], refuses},

	"informerpool.FromConfig":           {informerpool.FromConfig, refuses},
	"informerpool.FromDynamic":          {informerpool.FromDynamic, refuses},
	"informerpool.FromREST":             {informerpool.FromREST, refuses},
	"informerpool.New":                  {informerpool.New, refuses},
	"informerpool.ResourceEventHandler": {informerpool.ResourceEventHandler, refuses},

	"multicluster.ManagerFor":   {multicluster.ManagerFor, refuses},
	"multicluster.New":          {multicluster.New, refuses},
	"multicluster.NewProvider":  {multicluster.NewProvider[string, multicluster.Aware[string]], refuses},
	"multicluster.NewRegistrar": {multicluster.NewRegistrar[string], accepts},
	"multicluster.NewSource":    {multicluster.NewSource[string, int], refuses},

	"remote.AddFinalizer":    {remote.AddFinalizer, refuses},
	"remote.NewRecorder":     {remote.NewRecorder, refuses},
	"remote.RemoveFinalizer": {remote.RemoveFinalizer, refuses},

	"resolver.ArgoCD":                    {resolver.ArgoCD, refuses},
	"resolver.ArgoCDName":                {resolver.ArgoCDName, accepts},
	"resolver.AsLister":                  {resolver.AsLister, accepts},
	"resolver.AsNotifier":                {resolver.AsNotifier, accepts},
	"resolver.ByContext":                 {resolver.ByContext, accepts},
	"resolver.Chain":                     {resolver.Chain, accepts},
	"resolver.ClusterAPI":                {resolver.ClusterAPI, refuses},
	"resolver.ClusterAPIClusters":        {resolver.ClusterAPIClusters, refuses},
	"resolver.ClusterAPIReady":           {resolver.ClusterAPIReady, accepts},
	"resolver.ControlPlaneInitialized":   {resolver.ControlPlaneInitialized, accepts},
	"resolver.Diff":                      {resolver.Diff, accepts},
	"resolver.Files":                     {resolver.Files, refuses},
	"resolver.Flux":                      {resolver.Flux, refuses},
	"resolver.FromToken":                 {resolver.FromToken, refuses},
	"resolver.InCluster":                 {resolver.InCluster, accepts},
	"resolver.InHub":                     {resolver.InHub[resolver.HubOptions], refuses},
	"resolver.InfrastructureProvisioned": {resolver.InfrastructureProvisioned, accepts},
	"resolver.Istio":                     {resolver.Istio, refuses},
	"resolver.Karmada":                   {resolver.Karmada, refuses},
	"resolver.Kubeconfig":                {resolver.Kubeconfig, refuses},
	"resolver.MulticlusterRuntime":       {resolver.MulticlusterRuntime, refuses},
	"resolver.NewAccess":                 {resolver.NewAccess, refuses},
	"resolver.OCM":                       {resolver.OCM, refuses},
	"resolver.Objects":                   {resolver.Objects, refuses},
	"resolver.Referenced":                {resolver.Referenced, refuses},
	"resolver.Secrets":                   {resolver.Secrets, refuses},
	"resolver.Select":                    {resolver.Select, refuses},
	"resolver.ServiceAccounts":           {resolver.ServiceAccounts, refuses},
	"resolver.Static":                    {resolver.Static, accepts},
	"resolver.VClusterName":              {resolver.VClusterName, accepts},

	"inventory.ParseProviders": {inventory.ParseProviders, accepts},
	"inventory.Profiles":       {inventory.Profiles, refuses},
	"inventory.Secrets":        {inventory.Secrets, refuses},

	"settable.New":     {settable.New, accepts},
	"sharding.New":     {sharding.New, refuses},
	"sharding.Owners":  {sharding.Owners, refuses},
	"sharding.Predict": {sharding.Predict, refuses},

	"watchset.Decode": {watchset.Decode, accepts},
	"watchset.New":    {watchset.New, refuses},
	"watchset.Source": {watchset.Source[int], refuses},
}

var publicPackages = []string{
	"clustercache", "clustercache/clustercachetest", "clustercache/conditions", "clustercache/controller",
	"clustercache/fleet", "clustercache/multicluster", "clustercache/ownership", "clustercache/persist",
	"clustercache/persist/bolt",
	"clustercache/remote", "clustercache/resolver", "clustercache/resolver/inventory",
	"clustercache/resolver/settable", "clustercache/sharding", "clustercache/watchset", "gc", "informerpool",
}

// TestTableOfFunctionsIsComplete reads the source of the public packages.
func TestTableOfFunctionsIsComplete(t *testing.T) {
	var declared, listed []string
	for _, dir := range publicPackages {
		paths, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, paths, dir)
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() {
					declared = append(declared, file.Name.Name+"."+f.Name.Name)
				}
			}
		}
	}
	for name := range functions {
		listed = append(listed, name)
	}
	slices.Sort(declared)
	slices.Sort(listed)
	require.Equal(t, declared, listed)
}

// names are sentences that name what is missing: not "required" alone.
var names = regexp.MustCompile(
	`\w+[^:]*: .*(required|needs|nil|not set|empty|token|host|kubeconfig|no |at least|URL|must)`)

// TestFunctionThatGetsNothingNamesWhatItNeeds calls each exported function with
// zero values.
func TestFunctionThatGetsNothingNamesWhatItNeeds(t *testing.T) {
	for name, row := range functions {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := callWithNothing(t, name, reflect.ValueOf(row.f))
				if row.verdict == accepts {
					return
				}
				require.Error(t, err)
				require.Regexp(t, names, err.Error())
			})
		})
	}
}

// callWithNothing calls a function with zero values, and a context that has
// not ended. It returns the error of the function, or of the sequence that it
// returns, or the sentence with which it panics. It fails the test if that is
// a nil dereference.
func callWithNothing(t *testing.T, name string, f reflect.Value) (err error) {
	t.Helper()
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case runtime.Error:
			stack := make([]byte, 4<<10)
			t.Errorf("%s: %v\n%s", name, reason, stack[:runtime.Stack(stack, false)])
		default:
			err = fmt.Errorf("%v", reason)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var args []reflect.Value
	for i := range f.Type().NumIn() {
		in := f.Type().In(i)
		switch {
		case f.Type().IsVariadic() && i == f.Type().NumIn()-1:
		case in == reflect.TypeFor[context.Context]():
			args = append(args, reflect.ValueOf(ctx))
		default:
			args = append(args, reflect.Zero(in))
		}
	}

	results := f.Call(args)
	for _, result := range results {
		if source, ok := reflect.TypeAssert[source.TypedSource[int]](result); ok {
			return source.Start(ctx, nil) // its constructor cannot refuse
		}
		if result.Type() == reflect.TypeFor[error]() && !result.IsNil() {
			return result.Interface().(error)
		}
		if result.Kind() == reflect.Func && result.Type().CanSeq2() {
			for _, failure := range result.Seq2() {
				if failure, ok := reflect.TypeAssert[error](failure); ok {
					return failure
				}
			}
		}
	}

	return nil
}

// TestMethodThatGetsNothingDoesNotCrash calls each exported method with zero
// values.
func TestMethodThatGetsNothingDoesNotCrash(t *testing.T) {
	everything := func(t *testing.T) map[string]any {
		cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
		require.NoError(t, err)
		fleettest.Run(t, cc)
		watch, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.Pod{})
		require.NoError(t, err)
		handler, err := watch.AddEventHandler(informerpool.HandlerFunc(func(informerpool.Event) {}))
		require.NoError(t, err)
		objects, err := cc.Subscribe(events.Selection{}, func(events.Object) {})
		require.NoError(t, err)
		set, err := watchset.New(cc, watchset.Options{})
		require.NoError(t, err)
		recorder, err := remote.NewRecorder(cc, remote.RecorderOptions{Controller: "test.io/mistakes"})
		require.NoError(t, err)
		clusters := multicluster.New(cc, multicluster.Options{})
		access, err := cc.Cluster(fleettest.Key("a")).Client()
		require.NoError(t, err)

		return map[string]any{
			"ClusterCache":    cc,
			"Client":          access,
			"Reader":          cc.Cluster(fleettest.Key("a")).Reader(),
			"Watch":           watch,
			"Registration":    handler,
			"Subscription":    objects,
			"Set":             set,
			"Recorder":        recorder,
			"Recorder of one": recorder.For(fleettest.Key("a")),
			"Clusters":        clusters,
			"Builder":         controller.NewControllerManagedBy(fleettest.NewManager(), cc),
			"Builder of none": controller.NewControllerManagedBy(nil, nil),
			"Source of none": controller.ObjectSource(cc, events.Selection{},
				controller.ObjectMapFunc[reconcile.Request](nil)),
			"Source of all":     controller.ClusterSource(cc, controller.EnqueueCluster),
			"settable.Resolver": settable.New(),
			"Registrar":         multicluster.NewRegistrar[string](multicluster.Names{}),
			"Provider": multicluster.NewProvider[string, multicluster.Aware[string]](clusters,
				multicluster.ProviderOptions{}),
			"Source": multicluster.NewSource[string, int](cc, events.Selection{},
				func(context.Context, string, client.Object) []int { return nil }, multicluster.Names{}),
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for name, value := range everything(t) {
			v := reflect.ValueOf(value)
			for i := range v.NumMethod() {
				switch method := v.Type().Method(i).Name; method {
				case "Start", "Stop", "Close", "Release", "ReleaseCluster", "Collect", "Describe":
				case "Decode": // of the module's own interface
				default:
					_ = callWithNothing(t, name+"."+method, v.Method(i))
				}
			}
		}
	})
}
