// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/defaults"
)

// Options configure a ClusterCache. Resolver is required; every other field has
// a usable zero value.
type Options struct {
	// Resolver resolves a cluster to the access that reaches it. Required. If
	// it is also a [Notifier], changes take effect when it reports them;
	// otherwise when it is next queried (ResolveInterval, RetryInterval).
	Resolver resolver.Resolver
	// Discover makes every cluster that the Resolver lists known; the Resolver
	// must be a [Lister]. Without Discover, a cluster becomes known when it is
	// first requested: by Engage, Watch, Declare, or a read in mode AutoWatch.
	// A cluster that is no longer listed, and to which there is no access, is
	// removed after Grace, unless it was Engaged.
	Discover bool
	// Sharding lets the replicas of an operator share the clusters, such as a
	// sharding.Sharding, which has to be started as well. Then Discover makes
	// only those clusters known that this replica owns or stands by for; the
	// sources of clustercache/controller deliver requests only of those that it
	// owns; and writes to others fail with [ErrNotOwner], without a request.
	// Reads, Watch and Declare work for all clusters that are known, which
	// others become by Engage, Watch, Declare, or a read in mode AutoWatch. Nil
	// means that this replica owns all clusters.
	//
	// Without Discover, call the SetClusters of the Sharding. The zero key, the
	// hub, has one owner like any other: the manager's client writes to the hub
	// from every replica.
	Sharding ownership.Sharding
	// LeaderOnly makes a manager start the cache only once it is the leader, so
	// that the other replicas connect to no cluster and cost the fleet nothing.
	// What is lost is the warm start: a new leader connects to every cluster,
	// and lists everything, before its controllers read from a cache. Until
	// then, reads and writes on other replicas fail with [ErrNotStarted], which
	// is logged nowhere, and ReadyzCheck succeeds on them. A manager without
	// leader election is its own leader. Not together with Sharding. Default:
	// false, every replica is connected.
	LeaderOnly bool
	// Scheme maps Go types to kinds. Defaults to client-go's scheme, which has
	// all built-in types.
	Scheme *runtime.Scheme
	// Logger receives one line for each change of a cluster's phase, under the
	// name "fleetcache", and details at V(1). The context passed to the
	// Resolver carries it, so client-go's messages from those calls are logged
	// there as well. Defaults to controller-runtime's global logger, which
	// discards until it is set by SetLogger.
	Logger logr.Logger

	// ReadMode is the mode of reads that do not specify one. Defaults to
	// [PreferCache].
	ReadMode ReadMode
	// UnsafeDisableDeepCopy has readers share the objects that they read from
	// the cache, instead of copying them: whatever reads must not change them,
	// and has to make a copy first (DeepCopy). It is the default of the read
	// option of the same name, client.UnsafeDisableDeepCopy, and means what
	// controller-runtime's cache.Options call DefaultUnsafeDisableDeepCopy. A
	// shared read of an object that was read before takes a fraction of the time.
	// KUBE_CACHE_MUTATION_DETECTOR=true finds, in tests, who changes one.
	UnsafeDisableDeepCopy bool
	// ReadYourWrites makes reads by a [Cluster.Client] show what the
	// clients of this ClusterCache wrote before. A read that the cache would
	// answer with an older state waits for the cache, until the last of those
	// writes is this old; then, and as long as the cache is behind, the API
	// server answers, or, in mode CacheOnly, the read fails with [ErrStale].
	// Useful is a second. The option client.DisableReadYourWritesConsistency
	// excepts a read or a write; of DeleteAllOf, the field of that name in the
	// DeleteOptions. Defaults to 0, which means never: as with
	// EnableReadYourWritesConsistency of controller-runtime. docs/reading.md
	// says which writes count.
	ReadYourWrites time.Duration
	// IdleTimeout is how long an informer started by a read in mode [AutoWatch]
	// runs after the last such read. Defaults to 10 min.
	IdleTimeout time.Duration
	// StaleAfter is how long an informer may go without a sign of life before
	// Status reports the cluster as stale. An API server sends something once a
	// minute on an idle watch. Defaults to 3 min.
	StaleAfter time.Duration
	// Indexes are the fields by which reads of cached objects can select.
	Indexes []Index

	// ProbePath is the path that a probe requests. Where it is forbidden or
	// does not exist, the probe requests /version instead. An authenticated
	// refusal counts as a sign of life once another request was allowed, and so
	// does the response that the server is too busy (429). A response that lists
	// failing checks, as only an API server's does, degrades the cluster and
	// never disconnects it. Defaults to /readyz.
	ProbePath string
	// ProbeInterval is the time between two probes of a cluster. A sign of life
	// on any request makes the next probe unnecessary. Each interval is
	// shortened by up to a fifth, at random. A connection that is refused or
	// breaks is followed by a probe at once, and while connections are refused,
	// a probe follows every 500 ms. Defaults to 10 s.
	ProbeInterval time.Duration
	// ProbeTimeout bounds each request of a probe, of which there is one unless
	// another connection is tried, each of the few requests that connecting
	// takes, and each query of the Resolver, with all that they wait for: a
	// credential plugin, a round tripper that fetches a token, a dial. What is
	// waited for longer fails the attempt, and is its LastError. A credential
	// plugin may run on for 15 s in all, for the next attempt, and is killed
	// then. An attempt takes at most 24 times as long. Defaults to 5 s.
	ProbeTimeout time.Duration
	// FailureThreshold is the number of consecutive failed probes after which a
	// cluster is disconnected: up to so many intervals of ProbeInterval, or of
	// 500 ms while connections are refused. Defaults to 3.
	FailureThreshold int
	// SuccessThreshold is the number of consecutive successful probes after
	// which a degraded cluster is ready again. Defaults to 2.
	SuccessThreshold int
	// ProbeConcurrency limits the probes that run at once, in all clusters,
	// within the limits of ConnectConcurrency. Defaults to 50.
	ProbeConcurrency int
	// SilentAfter is how long a cluster may leave probes and attempts to
	// connect unanswered before subscribers get an event of type [Silent], once
	// for each silence. Zero means never. Status.LastProbeSuccess is set in any
	// case.
	SilentAfter time.Duration
	// ConnectConcurrency limits the attempts to connect, and the look-ups of
	// kinds, that run at once in all clusters. One that takes longer than a
	// second continues without being counted, and none waits for longer than
	// half a second, so that clusters that hang do not delay the others.
	// Defaults to 20.
	ConnectConcurrency int
	// MaxBackoff caps the time between two attempts to connect. That time
	// starts at 1 s and doubles; half of it is random. For a cluster that was
	// connected, it is at most 3 s or an eighth of the time since then,
	// whichever is longer, so that a short outage is over when the API server
	// returns. Defaults to 30 s.
	MaxBackoff time.Duration
	// RetryInterval is how long to wait before asking again after the answer
	// "not yet", from the resolver about access or from a cluster about a kind
	// that it does not serve. A kind is noticed within a second if the cluster
	// lets its CustomResourceDefinitions and APIServices be watched, which is
	// done, for their metadata alone, while a watched kind is not served; a
	// refusal does no harm. Defaults to 10 s.
	RetryInterval time.Duration
	// ResolveInterval is how often the resolver is queried about a connected
	// cluster; each interval is shortened by up to a fifth, at random. If the
	// result has the same [Access.Revision], no request is sent; if not, the
	// new access is proven before it replaces the old one. Defaults to 1 min,
	// or, as a safety net, to 10 min if the Resolver is a [Notifier] for
	// everything that it resolves ([resolver.AsNotifier]). Negative means
	// never. With Discover, the Resolver's list of clusters is read again as
	// often, and every RetryInterval if the Resolver is no such Notifier.
	ResolveInterval time.Duration
	// Grace is how long a connected cluster may be without access, for example
	// while its Secret is deleted and created again. Until Grace ends, the
	// cluster is used with its last access. After that, nothing is sent and, if
	// the cluster no longer exists, the cached objects are delivered as
	// deletes. Grace begins when the Resolver reports that there is no access.
	// The resolvers of the hub first wait for their own
	// [resolver.HubOptions].Grace, so that by default credentials of a deleted
	// Secret are used for up to 40 s, unless the API server refuses them.
	// Negative means none. Defaults to 30 s.
	Grace time.Duration
	// RequestTimeout bounds each live read and write. Defaults to 30 s.
	RequestTimeout time.Duration
	// MaxLiveBytes is how much memory the answer to one live read or write may
	// take: the size of objects is estimated before they are decoded, and lists
	// are decoded object by object. Beyond the limit the call fails with
	// [ErrBudget]. A short answer may take a sixteenth of the limit plus 16
	// times its own size, twice what real objects take. Defaults to 1 GiB: by
	// the estimates for Pods that is 200 MB of JSON in typed objects, or 35,000
	// Pods of 6 KB, and 120 MB in unstructured ones. Read longer lists in pages
	// (client.Limit). Negative means no limit. Clients that you build from
	// [Cluster.TransportConfig] are not limited.
	MaxLiveBytes int64

	// QPS and Burst limit the requests to one cluster, for all kinds together,
	// apart from watches, streamed lists, probes and those of connecting.
	// They default to 50 and twice QPS; a negative QPS means no limit.
	QPS   float64
	Burst int
	// UserAgent is sent with every request. Defaults to "fleetcache".
	UserAgent string
	// NetHTTP has net/http send all requests. By default, requests that read
	// and watches share an HTTP/2 connection of fleetcache's own client, in
	// which an idle watch costs one goroutine instead of two; net/http sends
	// writes, and serves clusters without HTTP/2, behind a proxy, or whose
	// access has round trippers of its own or impersonates a user. Answers are
	// the same. Default false.
	NetHTTP bool
	// DialPolicy decides which addresses from untrusted sources, such as
	// Secrets, may be dialed. It is applied after DNS, each time an address is
	// dialed. The zero value refuses link-local addresses and metadata
	// services, unspecified, multicast and reserved ones, and the hub's own API
	// server, which is known from a Pod's environment and from DialPolicy.Hub;
	// set it to the Host of the hub's rest.Config. Inside a Pod it also refuses
	// loopback, where sidecars listen; elsewhere that is where local clusters
	// are. A cluster behind such an address is [PhaseRefused]. Addresses from
	// the operator's own code are not checked: access that is Trusted
	// ([resolver.InCluster], [resolver.Static], [resolver.NewAccess]).
	DialPolicy resolver.DialPolicy
	// Dial opens all connections, except those of access that has its own Dial.
	// DialPolicy does not apply to it: Dial defines what addresses mean, as for
	// a tunnel. A Dial that reaches the network itself should use the function
	// that [resolver.DialPolicy.Dialer] returns. Defaults to a dialer with
	// DialPolicy, a time-out of 30 s, and keep-alives that detect a vanished
	// host within 45 s.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Name is the value of the label "cache" of every metric. A second instance
	// with the same name gets a number appended. Defaults to "default".
	Name string
	// MetricsRegisterer is where metrics are registered while the ClusterCache
	// runs. Defaults to controller-runtime's metrics.Registry.
	MetricsRegisterer prometheus.Registerer
	// FleetMetricsOnly omits the metric series of single clusters, eleven per
	// cluster. Metrics of the whole fleet stay. Where it makes sense, one
	// series with an empty label "cluster" stands for all clusters: the sum, or
	// the worst.
	FleetMetricsOnly bool

	// GC configures how declarations end.
	GC GC

	// Persist configures what is kept on disk for the next process, which then
	// begins with these caches instead of a list of everything: a list of
	// metadata proves that they are current. It needs a Store, such as one of
	// clustercache/persist/bolt. Clusters whose UID may not be read (the
	// namespace kube-system) are left out, since nothing proves that they are
	// the same ones again. Defaults to keeping nothing.
	Persist persist.Options

	// Informers configure the informers. Source, OnRollback and Snapshots must
	// be nil; Logger defaults to the Logger above, and PermissionInterval to
	// StaleAfter, or to 5 s if that is longer: a right that is revoked is
	// noticed within StaleAfter and a second.
	Informers informerpool.Options
}

// Index names a field of a kind by which lists can select, with
// client.MatchingFields. Values may be a client.IndexerFunc.
//
// The API server does not know the field. Where it has to answer such a list,
// for example before the informer has listed, it is queried without the field,
// and Values selects here, from up to 10,000 objects; beyond that the list
// fails with [ErrUnsupported]. A list never waits for an informer.
type Index struct {
	// GVK is the kind. Required.
	GVK schema.GroupVersionKind
	// Field is the name of the field, as in client.MatchingFields. Required.
	Field string
	// Values returns an object's values of the field. Required. The object
	// belongs to it. It must be quick, and is called from many goroutines.
	// While it panics for a cached object, or such an object does not fit the
	// Representation, lists by the field fail with an [*IndexError], which is
	// logged once and counted.
	Values func(client.Object) []string
	// Representation is the representation of the objects passed to Values.
	// Defaults to a typed object where Options.Scheme has the kind, and to an
	// unstructured one otherwise. A function that asserts a cached object, or
	// an unstructured one, gets that. Functions that read only metadata cost
	// least with [Packed].
	Representation Representation
}

// sameField reports whether two indexes are of the same field and
// representation.
func (x Index) sameField(y Index) bool {
	return x.GVK == y.GVK && x.Field == y.Field && x.Representation == y.Representation
}

// withDefaults returns the options with every zero value replaced, and one
// error that joins all invalid fields.
func (o Options) withDefaults() (Options, error) {
	err := o.validate()
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	if o.Logger.GetSink() == nil {
		o.Logger = ctrllog.Log
	}
	o.Logger = o.Logger.WithName("fleetcache")
	if o.Informers.Logger.GetSink() == nil {
		o.Informers.Logger = o.Logger
	}
	if o.MetricsRegisterer == nil {
		o.MetricsRegisterer = ctrlmetrics.Registry
	}
	defaults.Set(&o.Name, "default")
	defaults.Set(&o.ProbePath, "/readyz")
	defaults.Set(&o.ProbeInterval, 10*time.Second)
	defaults.Set(&o.ProbeTimeout, 5*time.Second)
	defaults.Set(&o.FailureThreshold, 3)
	defaults.Set(&o.SuccessThreshold, 2)
	defaults.Set(&o.ProbeConcurrency, 50)
	defaults.Set(&o.ConnectConcurrency, 20)
	defaults.Set(&o.MaxBackoff, 30*time.Second)
	defaults.Set(&o.RetryInterval, 10*time.Second)
	if _, all := resolver.AsNotifier(o.Resolver); all {
		defaults.Set(&o.ResolveInterval, 10*time.Minute)
	}
	defaults.Set(&o.ResolveInterval, time.Minute)
	defaults.Set(&o.Grace, 30*time.Second)
	defaults.Set(&o.RequestTimeout, 30*time.Second)
	defaults.Set(&o.IdleTimeout, 10*time.Minute)
	defaults.Set(&o.StaleAfter, 3*time.Minute)
	defaults.Set(&o.MaxLiveBytes, 1<<30)
	defaults.Set(&o.Informers.PermissionInterval, max(o.StaleAfter, informerpool.MinPermissionInterval))

	return o, err
}

func (o Options) validate() error {
	var errs []error
	check := func(ok bool, field, msg string) {
		if !ok {
			errs = append(errs, &OptionError{Field: field, Err: errors.New(msg)})
		}
	}
	check(o.Resolver != nil, "Resolver", "required")
	if _, ok := resolver.AsLister(o.Resolver); o.Discover && o.Resolver != nil {
		check(ok, "Discover", "needs a Resolver that lists clusters")
	}
	if v := reflect.ValueOf(o.Sharding); v.Kind() == reflect.Pointer {
		check(!v.IsNil(), "Sharding", "a nil pointer")
	}
	check(!o.LeaderOnly || o.Sharding == nil, "LeaderOnly", "contradicts Sharding, by which every replica has work")
	check(o.ReadMode <= LiveOnly, "ReadMode", "unknown")
	check(o.ProbePath == "" || (strings.HasPrefix(o.ProbePath, "/") && !strings.ContainsAny(o.ProbePath, " \t\r\n#")),
		"ProbePath", "must be an absolute path")

	for field, d := range map[string]time.Duration{
		"IdleTimeout":    o.IdleTimeout,
		"StaleAfter":     o.StaleAfter,
		"ProbeInterval":  o.ProbeInterval,
		"ProbeTimeout":   o.ProbeTimeout,
		"MaxBackoff":     o.MaxBackoff,
		"RetryInterval":  o.RetryInterval,
		"RequestTimeout": o.RequestTimeout,
		"SilentAfter":    o.SilentAfter,
		"ReadYourWrites": o.ReadYourWrites,
	} {
		check(d >= 0, field, "negative")
		check(hasUnit(d), field, noUnit)
	}
	for field, d := range map[string]time.Duration{
		"ResolveInterval": o.ResolveInterval,
		"Grace":           o.Grace,
		"GC.Grace":        o.GC.Grace,
		"GC.MinInterval":  o.GC.MinInterval,
		"GC.MaxInterval":  o.GC.MaxInterval,
		"GC.Timeout":      o.GC.Timeout,
	} {
		check(hasUnit(d), field, noUnit)
	}

	check(o.MaxBackoff == 0 || o.MaxBackoff >= time.Second, "MaxBackoff", "less than a second")

	for field, n := range map[string]int{
		"FailureThreshold":   o.FailureThreshold,
		"SuccessThreshold":   o.SuccessThreshold,
		"ProbeConcurrency":   o.ProbeConcurrency,
		"ConnectConcurrency": o.ConnectConcurrency,
		"Burst":              o.Burst,
	} {
		check(n >= 0, field, "negative")
	}

	o.GC.validate(check)
	check(!math.IsNaN(o.QPS), "QPS", "not a number")
	check(o.Informers.Source == nil, "Informers.Source", "is the ClusterCache's own")
	check(o.Informers.OnRollback == nil, "Informers.OnRollback", "is the ClusterCache's own")
	check(o.Informers.Snapshots == nil, "Informers.Snapshots", "is the ClusterCache's own: use Persist")
	validatePersist(o.Persist, check)
	for i, x := range o.Indexes {
		errs = append(errs, x.validate(fmt.Sprintf("Indexes[%d]", i))...)
		check(!slices.ContainsFunc(o.Indexes[:i], func(y Index) bool { return y.sameField(x) }),
			fmt.Sprintf("Indexes[%d]", i), "the field has an index already")
	}

	return errors.Join(errs...)
}

// validatePersist calls check for each constraint.
func validatePersist(o persist.Options, check func(ok bool, field, msg string)) {
	check(o.Interval == 0 || o.Interval >= time.Second, "Persist.Interval", "less than a second")
	check(len(o.Key) == 0 || len(o.Key) == persist.KeyBytes, "Persist.Key", "must have 32 bytes")
	if v := reflect.ValueOf(o.Store); v.Kind() == reflect.Pointer {
		check(!v.IsNil(), "Persist.Store", "a nil pointer")
	}
	secrets := schema.GroupKind{Kind: "Secret"}
	check(o.Secrets || !slices.Contains(o.Only, secrets), "Persist.Only", "Secrets are kept with Persist.Secrets only")
	check(!o.Secrets || !slices.Contains(o.Except, secrets), "Persist.Except", "contradicts Persist.Secrets")
	noKind := func(kind schema.GroupKind) bool { return kind.Kind == "" }
	check(!slices.ContainsFunc(o.Only, noKind), "Persist.Only", "a kind is required")
	check(!slices.ContainsFunc(o.Except, noKind), "Persist.Except", "a kind is required")
	set := o.Interval != 0 || o.BytesPerSecond != 0 || o.MaxBytes != 0 || o.MaxAge != 0 || o.MaxListAge != 0 ||
		o.FlushTimeout != 0 || o.Secrets || len(o.Only) > 0 || len(o.Except) > 0 ||
		o.TransformRevision != "" || len(o.Key) > 0
	check(o.Store != nil || !set, "Persist.Store", "required by the other fields of Persist")
}

// brokenPause is the time between two probes of a server that refuses
// connections.
const brokenPause = 500 * time.Millisecond

// phases returns the numbers on which the connection's decisions depend.
func (o Options) phases() phase.Config {
	return phase.Config{
		ProbeInterval:    o.ProbeInterval,
		BrokenPause:      min(brokenPause, o.ProbeInterval),
		FailureThreshold: o.FailureThreshold,
		SuccessThreshold: o.SuccessThreshold,
		Grace:            max(o.Grace, 0),
		RetryBase:        time.Second,
		RetryMax:         o.MaxBackoff,
		ResolveRetry:     o.RetryInterval,
		ResolveInterval:  max(o.ResolveInterval, 0),
		SilentAfter:      o.SilentAfter,
	}
}

const noUnit = "less than a millisecond: a number without a unit counts nanoseconds"

// hasUnit reports whether a duration is none, or so long that it was meant.
func hasUnit(d time.Duration) bool { return d <= 0 || d >= time.Millisecond }

// GC configures when unused declarations end, and how owners that end without a
// Drop are found. With the zero value, only Declare and Drop release what an
// owner declared.
type GC struct {
	// InUse reports whether an owner still exists; [OwnerExists] makes one that
	// queries the hub. It must honor ctx. After an error nothing is known about
	// the owner, and nothing is released; gc.ErrPartial has the same effect
	// without an error in the log. An owner is given up when two answers at
	// least Grace apart report that it is gone, and it declared nothing between
	// them; it is then called once more ([ClusterCache.SubscribeOwners]), so
	// that one which exists declares again. An owner that is being deleted has
	// to count as in use until it is gone: its finalizer may wait for what it
	// declared. Optional; by default [SetupWithManager] queries the manager's
	// cluster.
	InUse func(ctx context.Context, owner Owner) (bool, error)

	// Grace is how long a watch is kept after its last owner released it, in
	// place of Informers.Linger: used again within that time, it costs no
	// request. Defaults to 30 s; negative means none.
	Grace time.Duration

	// MinInterval is the time from an owner's first declaration to the first
	// check of the owner. The interval doubles with each check that finds the
	// owner in use. Defaults to 2 s.
	MinInterval time.Duration
	// MaxInterval is the longest time between two checks of an owner. Defaults
	// to 512 s, or to MinInterval if that is longer.
	MaxInterval time.Duration
	// Timeout bounds one call of InUse. Defaults to 10 s.
	Timeout time.Duration
	// Concurrency is how many calls of InUse run at once. Defaults to 8.
	Concurrency int
	// Rate is how many calls of InUse begin per second, with bursts of
	// Concurrency. Defaults to 100; +Inf means no limit.
	Rate float64
}

// validate calls check for each constraint.
func (o GC) validate(check func(ok bool, field, msg string)) {
	check(o.MinInterval >= 0, "GC.MinInterval", "negative")
	check(o.MaxInterval >= 0, "GC.MaxInterval", "negative")
	check(o.MaxInterval <= 0 || o.MaxInterval >= o.MinInterval, "GC.MaxInterval", "less than MinInterval")
	check(o.Timeout >= 0, "GC.Timeout", "negative")
	check(o.Concurrency >= 0, "GC.Concurrency", "negative")
	check(o.Rate >= 0 && !math.IsNaN(o.Rate), "GC.Rate", "negative")
}
