// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/ptr"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// Settings are what SetupWithManager makes of Cluster API's options, and what
// these lack.
type Settings struct {
	// Fleet are the options of the ClusterCache below. Its Resolver is set
	// afterwards.
	Fleet clustercache.Options
	// Secrets are the options of the resolver that watches the kubeconfig
	// Secrets. Secrets.Allow permits what is refused by default, such as
	// proxies.
	Secrets resolver.HubOptions
	// Metrics is where metrics of Cluster API's names are registered, in place
	// of those that Cluster API's package has registered there: for the usual
	// ones set it to controller-runtime's metrics.Registry. Nil, the default,
	// means that there are none.
	Metrics prometheus.Registerer
	// StartIndexed starts the informers of the kinds in Cache.Indexes when a
	// cluster is connected, as Cluster API does before that. By default the
	// first read of a kind starts its informer, so that a cluster that lacks
	// the kind has no fault, and the API server answers until that has listed.
	StartIndexed bool
	// FailureInterval is that of [Options].
	FailureInterval time.Duration
}

var errRequired = errors.New("required")

// SetupWithManager takes the place of Cluster API's function of this name, and
// takes its options. The manager runs the result, on the leader alone unless
// controllerOptions.NeedLeaderElection is false. It does no I/O.
//
// The clusters are those that have a Cluster object, which is read from the
// manager's cache. Their kubeconfig Secrets are watched by the label
// cluster.x-k8s.io/cluster-name, with the manager's configuration, so that
// Options.SecretClient is not used: in all namespaces, or, where that is
// forbidden, in those that have a Cluster object. Of controllerOptions, NeedLeaderElection
// alone is used. Cluster API's defaults and numbers apply: a time-out of 10 s,
// 20 QPS, a burst of 30, probes every 10 s, and the end of the connection after
// five that failed. The functions change what results from that.
//
// The errors are [*clustercache.OptionError], those of
// [clustercache.New] and of the manager.
func SetupWithManager(
	ctx context.Context, mgr manager.Manager, options capi.Options, controllerOptions controller.Options,
	change ...func(*Settings),
) (*ClusterCache, error) {
	if mgr == nil {
		return nil, &clustercache.OptionError{Field: "mgr", Err: errRequired}
	}
	cached, err := newCached(mgr.GetScheme(), options.Cache)
	if err != nil {
		return nil, err
	}
	settings, err := newSettings(ctx, mgr, options.Client)
	if err != nil {
		return nil, err
	}
	settings.Fleet.Informers.Transforms = cached.transforms
	settings.Fleet.Informers.DropManagedFields = cached.dropManagedFields
	for _, f := range change {
		f(&settings)
	}
	kubeconfigs, err := newSecrets(mgr, settings.Secrets)
	if err != nil {
		return nil, err
	}
	settings.Fleet.Resolver = &hubClusters{
		hub:         mgr.GetCache(),
		secrets:     kubeconfigs,
		watchFilter: options.WatchFilterValue,
		filter:      options.ClusterFilter,
	}
	cc, err := clustercache.New(settings.Fleet)
	if err != nil {
		return nil, err
	}
	o := Options{
		Hub:             mgr.GetCache(),
		DisableFor:      slices.Concat(options.Client.Cache.DisableFor, cached.limited),
		SyncPeriod:      ptr.Deref(options.Cache.SyncPeriod, 0),
		FailureInterval: settings.FailureInterval,
	}
	if settings.StartIndexed {
		for _, index := range options.Cache.Indexes {
			o.Informers = append(o.Informers, index.Object)
		}
	}
	c, err := New(cc, o)
	if err != nil {
		return nil, err
	}
	c.limits = cached.limits
	for _, index := range options.Cache.Indexes {
		if err := c.clusters.IndexField(ctx, index.Object, index.Field, index.ExtractValue); err != nil {
			return nil, &clustercache.OptionError{Field: "Cache.Indexes[" + index.Field + "]", Err: err}
		}
	}

	leader := ptr.Deref(controllerOptions.NeedLeaderElection, true)
	return c, mgr.Add(&runnable{ClusterCache: cc, leader: leader, metrics: &metrics{cc: cc, to: settings.Metrics}})
}

// newSecrets makes the resolver of the kubeconfig Secrets.
func newSecrets(mgr manager.Manager, o resolver.HubOptions) (*secrets, error) {
	in := func(namespace string) (*resolver.HubResolver, error) {
		o := o
		o.Namespace = namespace
		return resolver.InHub(mgr.GetConfig(), resolver.ClusterAPI, o)
	}
	whole, err := in(o.Namespace)
	if err != nil {
		return nil, err
	}
	s := &secrets{hub: mgr.GetAPIReader(), log: o.Logger, whole: whole}
	if o.Namespace == "" {
		s.in = in
	}
	return s, nil
}

// newSettings translates Cluster API's options.
func newSettings(ctx context.Context, mgr manager.Manager, o capi.ClientOptions) (Settings, error) {
	if o.UserAgent == "" {
		return Settings{}, &clustercache.OptionError{Field: "Client.UserAgent", Err: errRequired}
	}
	fleet := clustercache.Options{
		Discover:         true,
		Scheme:           mgr.GetScheme(),
		Logger:           ctrl.LoggerFrom(ctx),
		Name:             "clusterapi",
		ProbeInterval:    10 * time.Second,
		ProbeTimeout:     5 * time.Second,
		FailureThreshold: 5,
		SuccessThreshold: 1,
		RequestTimeout:   cmp.Or(o.Timeout, 10*time.Second),
		QPS:              float64(cmp.Or(o.QPS, 20)),
		Burst:            cmp.Or(o.Burst, 30),
		UserAgent:        o.UserAgent,
	}
	// A management cluster may manage itself.
	fleet.DialPolicy.AllowHub = true

	return Settings{Fleet: fleet, Secrets: resolver.HubOptions{Logger: fleet.Logger}}, nil
}

// runnable is the ClusterCache as the manager runs it.
type runnable struct {
	*clustercache.ClusterCache

	leader  bool
	metrics *metrics
}

// NeedLeaderElection reports whether only the leader connects.
func (r *runnable) NeedLeaderElection() bool { return r.leader }

// Start runs the ClusterCache until ctx ends.
func (r *runnable) Start(ctx context.Context) error {
	if err := r.metrics.register(); err != nil {
		r.Options().Logger.Error(err, "Metrics of Cluster API's names are not exported")
	}
	defer r.metrics.unregister()

	return r.ClusterCache.Start(ctx)
}
