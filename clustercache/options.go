// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
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

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
)

// Options configure a ClusterCache. Resolver is required; every other field has
// a usable zero value. docs/reaching.md, docs/reading.md and docs/lifetimes.md
// say more about them.
type Options struct {
	// Resolver resolves a cluster to the access that reaches it. Required. The
	// changes that a [resolver.Notifier] reports take effect at once.
	Resolver resolver.Resolver
	// Discover makes every cluster that the Resolver lists known; the Resolver
	// must be a [resolver.Lister]. A cluster that is no longer listed, and has
	// no access, is removed after Grace, unless it was engaged.
	Discover bool
	// Sharding lets the replicas of an operator share the clusters, such as a
	// sharding.Sharding. Then Discover makes only those clusters known that
	// this replica owns or stands by for, sources of controllers deliver only
	// those that it owns, and writes to others fail with [ErrNotOwner]. Start
	// the Sharding as well and, without Discover, call its SetClusters. Nil
	// means that this replica owns all.
	Sharding ownership.Sharding
	// LeaderOnly makes a manager start the cache only once it leads, with cold
	// caches. Until then reads and writes fail with [ErrNotStarted], and
	// ReadyzCheck succeeds. Not together with Sharding.
	LeaderOnly bool
	// Scheme maps Go types to kinds. Defaults to client-go's scheme.
	Scheme *runtime.Scheme
	// Logger receives one line for each change of a cluster's phase, and
	// details at V(1). Defaults to controller-runtime's global logger.
	Logger logr.Logger

	// ReadMode is the mode of reads that do not specify one. Defaults to
	// [PreferCache].
	ReadMode ReadMode
	// UnsafeDisableDeepCopy is the default of the read option
	// client.UnsafeDisableDeepCopy: readers share what they read from the
	// cache, and must not change it.
	UnsafeDisableDeepCopy bool
	// ReadYourWrites makes reads by a [Cluster.Client] show what the clients
	// of this ClusterCache wrote before: where the cache is behind, they wait
	// until the write is this old, such as a second, and then go to the API
	// server or, in mode CacheOnly, fail with [ErrStale]. docs/reading.md says
	// which writes count. Defaults to 0, never.
	ReadYourWrites time.Duration
	// IdleTimeout is how long an informer started by a read in mode [AutoWatch]
	// runs after the last such read. Defaults to 10 min.
	IdleTimeout time.Duration
	// StaleAfter is how long an informer may go without a sign of life, of
	// which an idle watch has one a minute, before it does not answer reads.
	// Defaults to 3 min.
	StaleAfter time.Duration
	// Indexes are the fields by which reads of cached objects can select.
	Indexes []Index

	// ProbePath is the path that a probe requests, or /version where that is
	// forbidden or does not exist. Defaults to /readyz.
	ProbePath string
	// ProbeInterval is the time between two probes of a cluster that shows no
	// other sign of life, less up to a fifth, at random. Defaults to 10 s.
	ProbeInterval time.Duration
	// ProbeTimeout bounds each request of a probe or of connecting, and each
	// query of the Resolver, with all that they wait for. Defaults to 5 s.
	ProbeTimeout time.Duration
	// FailureThreshold is the number of consecutive failed probes after which a
	// cluster is disconnected. Defaults to 3.
	FailureThreshold int
	// SuccessThreshold is the number of consecutive successful probes after
	// which a degraded cluster is ready again. Defaults to 2.
	SuccessThreshold int
	// ProbeConcurrency limits the probes that run at once, in all clusters.
	// Defaults to 50.
	ProbeConcurrency int
	// SilentAfter is how long a cluster may leave probes and attempts to
	// connect unanswered before an event of type [events.Silent]. Zero means
	// never.
	SilentAfter time.Duration
	// ConnectConcurrency limits the attempts to connect, and the look-ups of
	// kinds, that run at once in all clusters, not counting those that take
	// longer than a second. Defaults to 20.
	ConnectConcurrency int
	// MaxBackoff caps the time between two attempts to connect, which starts at
	// 1 s and doubles. Defaults to 30 s.
	MaxBackoff time.Duration
	// RetryInterval is how long to wait before asking again after the answer
	// "not yet", from the resolver about access or from a cluster about a kind
	// that it does not serve. Defaults to 10 s.
	RetryInterval time.Duration
	// ResolveInterval is how often the resolver is queried about a connected
	// cluster and, with Discover, for its list of clusters. Defaults to 1 min,
	// or to 10 min if the Resolver is a [resolver.Notifier] for all that it
	// resolves; without that it lists every RetryInterval. Negative means
	// never.
	ResolveInterval time.Duration
	// Grace is how long a cluster without access is used with its last one, as
	// while its Secret is deleted and created again. After that it is
	// disconnected and, if it no longer exists, its objects are delivered as
	// deletes. Defaults to 30 s; negative means none.
	Grace time.Duration
	// RequestTimeout bounds each live read and write. Defaults to 30 s.
	RequestTimeout time.Duration
	// MaxLiveBytes is how much memory the answer to one live read or write may
	// take, as estimated before it is decoded. Beyond it the call fails with
	// [ErrBudget]: read longer lists in pages (client.Limit). Defaults to
	// 1 GiB, which is 35,000 Pods of 6 KB; negative means no limit.
	MaxLiveBytes int64

	// QPS and Burst limit the requests to one cluster, for all kinds together,
	// apart from watches, streamed lists, probes and those of connecting.
	// They default to 50 and twice QPS; a negative QPS means no limit.
	QPS   float64
	Burst int
	// UserAgent is sent with every request. Defaults to "fleetcache".
	UserAgent string
	// NetHTTP has net/http send all requests, in place of fleetcache's own
	// HTTP/2 client, in which an idle watch costs one goroutine instead of two.
	NetHTTP bool
	// DialPolicy decides, after DNS, which addresses from untrusted sources,
	// such as Secrets, may be dialed; access from the operator's own code is
	// not checked. The zero value refuses what docs/reaching.md lists. Set its
	// Hub to the Host of the hub's rest.Config, as [SetupWithManager] does.
	DialPolicy resolver.DialPolicy
	// Dial opens all connections, except those of access that has its own Dial.
	// DialPolicy does not apply to it, unless it uses the function that
	// [resolver.DialPolicy.Dialer] returns, as the default does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Name is the value of the label "cache" of every metric. A second instance
	// with the same name gets a number appended. Defaults to "default".
	Name string
	// MetricsRegisterer is where metrics are registered while the ClusterCache
	// runs. Defaults to controller-runtime's metrics.Registry.
	MetricsRegisterer prometheus.Registerer
	// FleetMetricsOnly omits the metric series of single clusters, eleven per
	// cluster: docs/metrics.md.
	FleetMetricsOnly bool

	// GC configures how declarations end.
	GC GC
	// Persist configures what is kept on disk for the next process, which then
	// begins with these caches instead of lists: docs/persist.md. Defaults to
	// keeping nothing.
	Persist persist.Options
	// Informers configure the informers. Source, OnRollback and Snapshots must
	// be nil; PermissionInterval defaults to StaleAfter, or to 5 s if that is
	// longer.
	Informers informerpool.Options
}

// Index names a field of a kind by which lists can select, with
// client.MatchingFields.
//
// Where the API server has to answer such a list, Values selects here, from up
// to 10,000 objects; beyond that the list fails with [ErrUnsupported].
type Index struct {
	// GVK is the kind. Required.
	GVK schema.GroupVersionKind
	// Field is the name of the field. Required.
	Field string
	// Values returns an object's values of the field; it may be a
	// client.IndexerFunc. Required. The object belongs to it. It must be quick,
	// and is called from many goroutines.
	Values func(client.Object) []string
	// Representation is that of the objects passed to Values; [events.Packed]
	// is the cheapest. Defaults to a typed object where Options.Scheme has the
	// kind, and to an unstructured one otherwise.
	Representation events.Representation
}

func (x Index) validate(field string) []error {
	var errs []error
	check := func(ok bool, name string) {
		if !ok {
			errs = append(errs, &OptionError{Field: field + "." + name, Err: errors.New("required")})
		}
	}
	check(x.GVK.Version != "" && x.GVK.Kind != "", "GVK")
	check(x.Field != "", "Field")
	check(x.Values != nil, "Values")
	if x.Representation > events.Metadata {
		errs = append(errs, &OptionError{Field: field + ".Representation", Err: ErrUnsupported})
	}

	return errs
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
	o.Name = cmp.Or(o.Name, "default")
	o.ProbePath = cmp.Or(o.ProbePath, "/readyz")
	o.ProbeInterval = cmp.Or(o.ProbeInterval, 10*time.Second)
	o.ProbeTimeout = cmp.Or(o.ProbeTimeout, 5*time.Second)
	o.FailureThreshold = cmp.Or(o.FailureThreshold, 3)
	o.SuccessThreshold = cmp.Or(o.SuccessThreshold, 2)
	o.ProbeConcurrency = cmp.Or(o.ProbeConcurrency, 50)
	o.ConnectConcurrency = cmp.Or(o.ConnectConcurrency, 20)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, 30*time.Second)
	o.RetryInterval = cmp.Or(o.RetryInterval, 10*time.Second)
	if _, all := resolver.AsNotifier(o.Resolver); all {
		o.ResolveInterval = cmp.Or(o.ResolveInterval, 10*time.Minute)
	}
	o.ResolveInterval = cmp.Or(o.ResolveInterval, time.Minute)
	o.Grace = cmp.Or(o.Grace, 30*time.Second)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, 30*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 10*time.Minute)
	o.StaleAfter = cmp.Or(o.StaleAfter, 3*time.Minute)
	o.MaxLiveBytes = cmp.Or(o.MaxLiveBytes, 1<<30)
	o.Informers.PermissionInterval = cmp.Or(o.Informers.PermissionInterval,
		max(o.StaleAfter, informerpool.MinPermissionInterval))

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
		"GC.MinInterval": o.GC.MinInterval,
		"GC.MaxInterval": o.GC.MaxInterval,
		"GC.Timeout":     o.GC.Timeout,
	} {
		check(d >= 0, field, "negative")
		check(hasUnit(d), field, noUnit)
	}
	for field, d := range map[string]time.Duration{
		"ResolveInterval": o.ResolveInterval,
		"Grace":           o.Grace,
		"GC.Grace":        o.GC.Grace,
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
		same := func(y Index) bool {
			return x.GVK == y.GVK && x.Field == y.Field && x.Representation == y.Representation
		}
		check(!slices.ContainsFunc(o.Indexes[:i], same),
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
// Drop are found. docs/lifetimes.md explains the times.
type GC struct {
	// InUse reports whether an owner still exists, or is being deleted;
	// [OwnerExists] makes one that queries the hub. It must honor ctx. After an
	// error nothing is released; gc.ErrPartial is one that is not logged. An
	// owner is given up after two answers, at least Grace apart, that it is
	// gone, unless it declares in between. Without InUse, only Declare and Drop
	// end what was declared. [SetupWithManager] has a default.
	InUse func(ctx context.Context, owner Owner) (bool, error)

	// Grace is how long a watch is kept after its last owner released it, in
	// place of Informers.Linger. Defaults to 30 s; negative means none.
	Grace time.Duration

	// MinInterval is the time from an owner's first declaration to its first
	// check. It doubles with each check that finds the owner in use. Defaults
	// to 2 s.
	MinInterval time.Duration
	// MaxInterval is the longest time between two checks. Defaults to 512 s, or
	// to MinInterval if that is longer.
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
	check(o.MaxInterval <= 0 || o.MaxInterval >= o.MinInterval, "GC.MaxInterval", "less than MinInterval")
	check(o.Concurrency >= 0, "GC.Concurrency", "negative")
	check(o.Rate >= 0 && !math.IsNaN(o.Rate), "GC.Rate", "negative")
}
