// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
)

// Defaults of [Options].
const (
	DefaultProbePath          = "/readyz"
	DefaultProbeInterval      = 10 * time.Second
	DefaultProbeTimeout       = 5 * time.Second
	DefaultFailureThreshold   = 3
	DefaultSuccessThreshold   = 2
	DefaultConnectConcurrency = 20
	DefaultProbeConcurrency   = 50
	DefaultGrace              = 30 * time.Second
	DefaultMaxBackoff         = 30 * time.Second
	DefaultRetryInterval      = 10 * time.Second
	DefaultRequestTimeout     = 30 * time.Second
	DefaultIdleTimeout        = 10 * time.Minute
	DefaultStaleAfter         = 3 * time.Minute
	DefaultMaxLiveBytes       = 1 << 30
	// DefaultResolveInterval is for a Resolver that tells of no changes,
	// DefaultNotifiedResolveInterval for one that does.
	DefaultResolveInterval         = time.Minute
	DefaultNotifiedResolveInterval = 10 * time.Minute
)

// Options configure a ClusterCache. Resolver is required; every other field has
// a working zero value.
type Options struct {
	// Resolver says how clusters are reached. Required. If it is a [Notifier]
	// too, changes take effect when it tells of them; otherwise when it is
	// asked again (ResolveInterval, RetryInterval).
	Resolver Resolver
	// Discover makes every cluster the Resolver lists known by itself; the
	// Resolver must be a [Lister]. Without it a cluster becomes known when it
	// is first asked for: Engage, Watch, Declare, or a read in mode AutoWatch.
	// A cluster that is not listed any more, and that there is no access to,
	// goes after Grace, unless it was Engaged.
	Discover bool
	// Scheme maps Go types to kinds. Defaults to client-go's, with all built-in
	// types.
	Scheme *runtime.Scheme
	// Logger receives one line per change of a cluster's phase, under the name
	// "fleetcache", and details at V(1). The context of a Resolver's calls
	// carries it, so that what client-go logs there ends up in it, too.
	// Defaults to discarding.
	Logger logr.Logger

	// ReadMode is how reads are answered unless they say otherwise. Defaults to
	// [Live].
	ReadMode ReadMode
	// IdleTimeout is how long an informer that a read in mode [AutoWatch] took
	// outlives the last such read. Defaults to 10 min.
	IdleTimeout time.Duration
	// StaleAfter is how long an informer may go without a sign of life before
	// Status calls the cluster stale. An API server speaks once a minute on an
	// idle watch. Defaults to 3 min.
	StaleAfter time.Duration
	// Indexes are fields that reads of cached objects can select by.
	Indexes []Index

	// ProbePath is what a probe asks for. Where it is forbidden or does not
	// exist, /version is asked instead, and an authenticated refusal counts as
	// life, once something else was allowed; so does the answer that the server
	// is too busy (429). Defaults to /readyz.
	ProbePath string
	// ProbeInterval is the time between two probes of a cluster; signs of life
	// on any request spare one. Each is up to a fifth shorter, at random.
	// Defaults to 10 s.
	ProbeInterval time.Duration
	// ProbeTimeout bounds one probe, and each of the few requests of an attempt
	// to connect. Defaults to 5 s.
	ProbeTimeout time.Duration
	// FailureThreshold is how many probes in a row fail before a cluster is
	// disconnected. Defaults to 3.
	FailureThreshold int
	// SuccessThreshold is how many probes in a row succeed before a degraded
	// cluster is ready again. Defaults to 2.
	SuccessThreshold int
	// ProbeConcurrency is how many probes run at once, in all clusters, within
	// the limits of ConnectConcurrency. Defaults to 50.
	ProbeConcurrency int
	// SilentAfter is how long a cluster goes without answering a probe, or an
	// attempt to connect, before subscribers get an event of the type [Silent],
	// once for each silence. Zero means never; Status.LastProbeSuccess is there
	// in any case.
	SilentAfter time.Duration
	// ConnectConcurrency is how many attempts to connect run at once, in all
	// clusters, and how many look-ups of kinds. One that takes longer than a
	// second goes on without being counted, and none waits for longer than half
	// a second, so that clusters that hang do not hold up the others. Defaults
	// to 20.
	ConnectConcurrency int
	// MaxBackoff caps the time between two attempts to connect. It starts at 1
	// s, doubles, and half of it is random. Defaults to 30 s.
	MaxBackoff time.Duration
	// RetryInterval is the time between two questions where the answer was "not
	// yet": to the resolver about access, and to a cluster about a kind it does
	// not serve. Defaults to 10 s.
	RetryInterval time.Duration
	// ResolveInterval is the time between two questions to the resolver about a
	// cluster that is connected, up to a fifth shorter at random. If the answer
	// has the same [Access.Revision], no request is sent; if not, the new
	// access is proven before it takes the old one's place. Defaults to 1 min,
	// or to 10 min if the Resolver is a [Notifier] of all that it resolves
	// ([resolver.AsNotifier]), in case that it misses something; negative means
	// never. With Discover, the Resolver's list of clusters is read again as
	// often, and every RetryInterval if it is no such Notifier.
	ResolveInterval time.Duration
	// Grace is how long a connected cluster may be without access, as when its
	// Secret is deleted and created again. Until then the access that it had is
	// used on, after which nothing is sent and, if the cluster does not exist
	// any more, what was cached is delivered as deletes. It begins when the
	// Resolver says so: those of the hub wait for their own
	// [resolver.HubOptions].Grace before, so that credentials of a deleted
	// Secret are used for up to 40 s by default, unless the API server refuses
	// them. Negative means none. Defaults to 30 s.
	Grace time.Duration
	// RequestTimeout bounds each live read and write. Defaults to 30 s.
	RequestTimeout time.Duration
	// MaxLiveBytes is how much memory the answer to one live read or write may
	// take: objects are estimated before they are decoded, and lists are
	// decoded one by one. Beyond it the call fails with [ErrBudget]. A short
	// answer has a sixteenth of it and 16 times its own size, twice what real
	// objects take. Defaults to 1 GiB: by the estimates for Pods that is 200 MB
	// of JSON in typed objects, or 35,000 Pods of 6 KB, and 120 MB in
	// unstructured ones. Read longer lists in pages (client.Limit). Negative
	// means no limit. Clients of one's own ([ClusterCache.TransportConfig])
	// decode what they get.
	MaxLiveBytes int64

	// QPS and Burst limit the requests to one cluster, of all kinds together.
	// Default to 50 and twice QPS; a negative QPS means no limit.
	QPS   float64
	Burst int
	// UserAgent is sent with every request. Defaults to "fleetcache".
	UserAgent string
	// DialPolicy judges the addresses of clusters that somebody else wrote
	// down, such as in a Secret, after DNS, each time one is dialled. The zero
	// value refuses link-local addresses and metadata services, unspecified,
	// multicast and reserved ones, and the hub's own API server, which is known
	// from a Pod's environment and from DialPolicy.Hub; give it the Host of the
	// hub's rest.Config. Inside of a Pod it refuses loopback as well, where
	// sidecars listen; elsewhere that is where local clusters are. A cluster
	// behind such an address is [PhaseRefused]. What the operator's own code
	// says is dialled as it says: access that is Trusted ([resolver.InCluster],
	// [resolver.Static], [resolver.NewAccess]) is not judged.
	DialPolicy resolver.DialPolicy
	// Dial opens all connections, but for access that brings a Dial of its own,
	// and then DialPolicy has no say: addresses mean what Dial makes of them,
	// as with a tunnel. A Dial that reaches the network itself should use the
	// function that [resolver.DialPolicy.Dialer] returns. Defaults to a dialer
	// with DialPolicy, a time-out of 30 s, and keep-alives that notice a
	// vanished host within 45 s.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Name is the value of the label "cache" of every metric. A second instance
	// of the same name gets a number behind it. Defaults to "default".
	Name string
	// MetricsRegisterer is what metrics are registered with while the
	// ClusterCache runs. Defaults to controller-runtime's metrics.Registry.
	MetricsRegisterer prometheus.Registerer
	// FleetMetricsOnly leaves out the metric series of single clusters, eleven
	// for each. What is told of the whole fleet stays, and where it makes sense
	// there is one series for all clusters, whose label "cluster" is empty: the
	// sum, or the worst.
	FleetMetricsOnly bool

	// GC says how what is declared ends.
	GC GC

	// Informers configure the informers. Source and OnRollback must be nil;
	// Logger defaults to the one above.
	Informers informerpool.Options
}

// Index names a field of a kind that cached lists can select by, with
// client.MatchingFields.
type Index struct {
	// GVK is the kind. Required.
	GVK schema.GroupVersionKind
	// Field is the name, as in client.MatchingFields. Required.
	Field string
	// Values returns an object's values of the field. Required. The object is
	// its own. It must be quick, and is called from many goroutines. While it
	// panics for a cached object, or such an object does not fit the Form,
	// lists by the field fail with an [*IndexError], which is logged once and
	// counted.
	Values func(client.Object) []string
	// Form is what Values is given. Defaults to a typed object where
	// Options.Scheme has the kind, and to an unstructured one otherwise; a
	// function that asserts that it is given a cached object, or an
	// unstructured one, is given that. Functions that read metadata alone cost
	// least with [Packed].
	Form Form
}

// withDefaults returns the options with every zero replaced, and one error for
// everything that is wrong.
func (o Options) withDefaults() (Options, error) {
	err := o.validate()
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	if o.Logger.GetSink() == nil {
		o.Logger = logr.Discard()
	}
	o.Logger = o.Logger.WithName("fleetcache")
	if o.Informers.Logger.GetSink() == nil {
		o.Informers.Logger = o.Logger
	}
	if o.MetricsRegisterer == nil {
		o.MetricsRegisterer = ctrlmetrics.Registry
	}
	setDefault(&o.Name, "default")
	setDefault(&o.ProbePath, DefaultProbePath)
	setDefault(&o.ProbeInterval, DefaultProbeInterval)
	setDefault(&o.ProbeTimeout, DefaultProbeTimeout)
	setDefault(&o.FailureThreshold, DefaultFailureThreshold)
	setDefault(&o.SuccessThreshold, DefaultSuccessThreshold)
	setDefault(&o.ProbeConcurrency, DefaultProbeConcurrency)
	setDefault(&o.ConnectConcurrency, DefaultConnectConcurrency)
	setDefault(&o.MaxBackoff, DefaultMaxBackoff)
	setDefault(&o.RetryInterval, DefaultRetryInterval)
	if _, all := resolver.AsNotifier(o.Resolver); all {
		setDefault(&o.ResolveInterval, DefaultNotifiedResolveInterval)
	}
	setDefault(&o.ResolveInterval, DefaultResolveInterval)
	setDefault(&o.Grace, DefaultGrace)
	setDefault(&o.RequestTimeout, DefaultRequestTimeout)
	setDefault(&o.IdleTimeout, DefaultIdleTimeout)
	setDefault(&o.StaleAfter, DefaultStaleAfter)
	setDefault(&o.MaxLiveBytes, DefaultMaxLiveBytes)
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
	check(o.ReadMode <= AutoWatch, "ReadMode", "unknown")
	check(o.ProbePath == "" || (strings.HasPrefix(o.ProbePath, "/") && !strings.ContainsAny(o.ProbePath, " \t\r\n#")), "ProbePath",
		"must be an absolute path")
	for field, d := range map[string]time.Duration{
		"IdleTimeout": o.IdleTimeout, "StaleAfter": o.StaleAfter, "ProbeInterval": o.ProbeInterval, "ProbeTimeout": o.ProbeTimeout,
		"MaxBackoff": o.MaxBackoff, "RetryInterval": o.RetryInterval, "RequestTimeout": o.RequestTimeout,
		"SilentAfter": o.SilentAfter,
	} {
		check(d >= 0, field, "negative")
	}
	check(o.MaxBackoff == 0 || o.MaxBackoff >= time.Second, "MaxBackoff", "less than a second")
	for field, n := range map[string]int{
		"FailureThreshold": o.FailureThreshold, "SuccessThreshold": o.SuccessThreshold, "ProbeConcurrency": o.ProbeConcurrency,
		"ConnectConcurrency": o.ConnectConcurrency, "Burst": o.Burst,
	} {
		check(n >= 0, field, "negative")
	}
	o.GC.validate(check)
	check(o.Informers.Source == nil, "Informers.Source", "is the ClusterCache's own")
	check(o.Informers.OnRollback == nil, "Informers.OnRollback", "is the ClusterCache's own")
	for i, x := range o.Indexes {
		errs = append(errs, x.validate(fmt.Sprintf("Indexes[%d]", i))...)
	}
	return errors.Join(errs...)
}

// phases are the numbers the connection's decisions depend on.
func (o Options) phases() phase.Config {
	return phase.Config{
		ProbeInterval: o.ProbeInterval, FailureThreshold: o.FailureThreshold, SuccessThreshold: o.SuccessThreshold, Grace: max(o.Grace, 0),
		RetryBase: time.Second, RetryMax: o.MaxBackoff, ResolveRetry: o.RetryInterval, ResolveInterval: max(o.ResolveInterval, 0),
		SilentAfter: o.SilentAfter,
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
