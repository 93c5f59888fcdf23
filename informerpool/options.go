// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"cmp"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Defaults of [Options].
const (
	DefaultLinger          = 30 * time.Second
	DefaultStallTimeout    = 3 * time.Minute
	DefaultListConcurrency = 50
	DefaultPermitTimeout   = time.Second
	DefaultPageSize        = 500
	DefaultMaxBackoff      = 30 * time.Second
	DefaultWatchTimeout    = 45 * time.Minute
	DefaultPollInterval    = 30 * time.Second
	DefaultMaxObjectBytes  = 10 << 20
	DefaultAuditInterval   = 6 * time.Hour
	DefaultMaxObjects      = 1_000_000
	DefaultMaxClusterBytes = 2 << 30
	DefaultDecodedBytes    = 64 << 20

	DefaultPermissionInterval = 3 * time.Minute
)

// MinPermissionInterval is the least Options.PermissionInterval.
const MinPermissionInterval = 5 * time.Second

// TransformFunc changes an object before it is stored, once per received state.
// It owns u. It must be quick, since it runs on the informer's goroutine, and
// must not change the name, namespace, uid or resourceVersion.
type TransformFunc func(u *unstructured.Unstructured) error

// Options configure a Pool. Source is required; the zero value of every other
// field works.
type Options struct {
	// Source opens lists and watches. Required.
	Source Source
	// Logger receives one line per state change of an informer, or of several
	// informers of a cluster that the same cause interrupts. By default nothing
	// is logged.
	Logger logr.Logger
	// Linger is how long an informer keeps running without leases, so that
	// acquiring it again costs no request. Zero means 30 s; a negative value
	// disables lingering.
	Linger time.Duration
	// StallTimeout is how long a watch may carry nothing before it is cut and
	// resumed; an API server sends a bookmark every 60 s. It also bounds how
	// long a list may carry nothing. Defaults to 3 min; less than 90 s is
	// refused.
	StallTimeout time.Duration
	// WatchTimeout is the duration that watches are requested with; each one
	// gets between two thirds and four thirds of it, at random. Defaults to 45
	// min, which gives 30 to 60 min.
	WatchTimeout time.Duration
	// PollInterval is about how long an informer waits between two lists of a
	// resource that cannot be watched, or that has no resourceVersions, neither
	// its lists nor objects in them. Each wait takes between two thirds and four
	// thirds of it, at random. A watch of a resource without resourceVersions
	// only makes the next list early, if it shows something else than the cache:
	// at once, and, if that goes on, after up to a quarter of PollInterval.
	// Defaults to 30 s; less than a second is refused.
	PollInterval time.Duration
	// AuditInterval bounds how long a cache can differ from its server
	// undetected, whatever happened to the server. Once per interval each
	// informer compares names, uids and versions with a current list of the
	// server, and lists anew if they differ. A change that the list shows
	// counts as lost if the stream does not bring it within 5 s, or within a
	// quarter of the interval if that is less. If the comparison itself fails,
	// the informer lists instead; if that fails too, the informer is degraded.
	// If the comparison fails because the server is overloaded (429), and lists
	// come in pages, the informer first keeps following its watch for up to
	// five minutes: its own list would be refused as well.
	//
	// An audit finds lost, missed and undone changes. It does not read whole
	// objects, so it does not find content that changed under one
	// resourceVersion, for example through a new default in a definition; the
	// next list does.
	//
	// Audits are spread over time, and wait behind lists. Defaults to 6 h; less
	// than a second is refused; negative means never. Intervals of a few
	// seconds, as in tests, are exceeded by the time the lists take, and by a
	// second or two.
	AuditInterval time.Duration
	// PermissionInterval bounds how long an informer follows a watch that its
	// server would refuse by now. An API server authorizes a watch when it
	// begins, and never again. Once per interval each informer that follows a
	// watch asks whether it could begin the same one again, which costs one
	// request without a body and no LIST; if that is forbidden, the informer
	// resumes, and is refused. Defaults to 3 min; less than 5 s is refused;
	// negative means never: a right that was revoked is then used until the
	// watch ends, after WatchTimeout at the latest.
	PermissionInterval time.Duration
	// ListConcurrency is how many initial lists may run at once in the whole
	// pool. Defaults to 50.
	ListConcurrency int
	// PermitTimeout is how long one list can hold back others. After that time
	// the list continues without being counted, so that hung clusters do not
	// stop the rest. The time is shorter, down to 50 ms, while lists are much
	// quicker; and once lists hang, no list waits for them longer than half a
	// second. Defaults to 1 s.
	PermitTimeout time.Duration
	// BurstGCPercent is what GOGC is lowered to, for the whole process, while
	// ListConcurrency informers or more list or are interrupted within 10 s, as
	// in the first sync of a fleet and after an outage. That takes less memory
	// beyond what is kept, and more CPU time: with 25, the heap grows to 1.25
	// times what is live, and not to twice of it. A GOGC that is lower or off
	// stays. Zero means never.
	BurstGCPercent int
	// PageSize is the number of objects in one page of a list where the server
	// does not stream lists. Defaults to 500.
	PageSize int64
	// PagedLists turns streaming lists off. Streaming is the default where the
	// server supports it (1.34 and later): it costs server and client the least
	// memory. A paged list needs a tenth of the bytes on the wire, because
	// servers before 1.37 compress only paged lists.
	PagedLists bool
	// MaxBackoff caps the wait between attempts. The wait starts at 0.5 s,
	// doubles, and is jittered by half. While requests are forbidden, it is a
	// sixtieth of the time for which they have been, and at least 0.9 s: a
	// right is used within a second if it is granted within a minute, or
	// together with another one that is. The refused informers of a cluster
	// share two attempts per second. Defaults to 30 s.
	MaxBackoff time.Duration
	// MaxObjectBytes is the largest JSON object accepted. Defaults to 10 MiB:
	// etcd accepts 1.5 MiB by default, and JSON may encode that in six times as
	// many bytes. The informer skips a larger object, whose state is then
	// unknown; see [Lease.Unknown].
	MaxObjectBytes int
	// MaxObjects is how many objects one informer may hold. A list or stream
	// that exceeds it fails with [ErrBudget]. Defaults to a million, several
	// times what API servers are tested with; negative means no limit.
	MaxObjects int
	// MaxClusterBytes is how much memory the informers of one cluster may take
	// together, as Status reports it. When it is exceeded, the informer that is
	// adding objects fails with [ErrBudget], and the other informers of the
	// cluster continue. While an informer replaces its objects, as after a
	// restore, both the old and the new ones count; if there is no room for
	// both, those that the list lacks are removed first. What Status reports as
	// SeenBytes does not count. Defaults to 2 GiB, which is more than a million
	// Pods; negative means no limit.
	MaxClusterBytes int64
	// DecodedBytes bounds the pool's cache of decoded objects, which serves
	// repeated reads of all clusters: those of typed objects, and of any form
	// with DecodeShared. Zero means 64 MiB; negative means no cache.
	DecodedBytes int64
	// DropManagedFields leaves metadata.managedFields out of the cache, which
	// saves about an eighth of the memory. Never extract an apply configuration
	// (ExtractConfigMap and the like) from an object that was read without
	// them: the extracted configuration is empty, and applying it removes
	// everything its manager owns from the remote object. Read such objects
	// live, in clustercache with the option ForApply.
	DropManagedFields bool
	// Transforms change objects of a resource before they are stored. The entry
	// of the zero GroupResource is for all resources that have none of their
	// own.
	Transforms map[schema.GroupResource]TransformFunc
	// Snapshots keeps states of informers for the next process. An informer
	// asks it once, before its first list, and shows a state only once the
	// server has proved that it is current. Optional.
	Snapshots Snapshots
	// OnRollback is called when a server's resourceVersion is behind the one an
	// informer has already seen. The informer waits for the call, without
	// holding locks, and then starts a new history by itself.
	OnRollback func(Key)
	// OnListed is called when a complete list has become the informer's state,
	// with the time since the first request for it. The informer waits for the
	// call, so it must be quick.
	OnListed func(Key, time.Duration)
	// OnPanic is called when a user's function panicked, or ended its goroutine
	// as t.FailNow does. callback is its name, such as "Handler" or "OnListed".
	// The panic is logged as well.
	OnPanic func(callback string)
	// OnFailed is called after each failed attempt, with the reason. The
	// informer waits for the call, without holding locks, so it must be quick.
	OnFailed func(Key, error)
	// OnChanged is called after the informer of a key has changed its state:
	// it has synced, was interrupted, refused or healed, or shows another
	// history. The same goes for the key of a lease that moves to another
	// informer. reads reports whether reads may be answered differently from
	// now on, other than by changes of objects. That trust has ended by time
	// alone is not reported; see [Lease.TrustEnds]. No informer waits for the
	// call. Calls come one at a time, and changes of a key are merged
	// meanwhile.
	OnChanged func(key Key, reads bool)
}

// TransformOf returns what changes the objects of a resource: its entry of
// Transforms, or else that of the zero GroupResource. It is nil if there is
// neither.
func (o *Options) TransformOf(resource schema.GroupResource) TransformFunc {
	if change := o.Transforms[resource]; change != nil {
		return change
	}
	return o.Transforms[schema.GroupResource{}]
}

// countsVersions reports whether each informer of a key counts its own
// versions, since the server has none.
func (o *Options) countsVersions(key Key) bool {
	source, ok := o.Source.(interface{ counting(key Key) bool })
	return ok && source.counting(key)
}

// withDefaults returns the options with every zero value replaced, or one error
// that joins all invalid options.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	check := func(ok bool, field, msg string) {
		if !ok {
			errs = append(errs, &OptionError{Field: field, Err: errors.New(msg)})
		}
	}
	check(o.Source != nil, "Source", "required")
	check(o.StallTimeout == 0 || o.StallTimeout >= 90*time.Second, "StallTimeout",
		"less than 90 s: an idle server speaks every 60 s")
	check(o.WatchTimeout == 0 || o.WatchTimeout >= time.Minute, "WatchTimeout", "less than a minute")
	check(o.PollInterval == 0 || o.PollInterval >= time.Second, "PollInterval", "less than a second")
	check(o.AuditInterval <= 0 || o.AuditInterval >= time.Second, "AuditInterval", "less than a second")
	check(o.PermissionInterval <= 0 || o.PermissionInterval >= MinPermissionInterval,
		"PermissionInterval", "less than 5 s")
	check(o.ListConcurrency >= 0, "ListConcurrency", "negative")
	check(o.PermitTimeout >= 0, "PermitTimeout", "negative")
	check(o.BurstGCPercent >= 0, "BurstGCPercent", "negative")
	check(o.PageSize >= 0, "PageSize", "negative")
	check(o.MaxBackoff == 0 || o.MaxBackoff >= time.Second, "MaxBackoff", "less than a second")
	check(o.MaxObjectBytes >= 0, "MaxObjectBytes", "negative")
	if o.Logger.GetSink() == nil {
		o.Logger = logr.Discard()
	}
	o.Linger = cmp.Or(o.Linger, DefaultLinger)
	o.StallTimeout = cmp.Or(o.StallTimeout, DefaultStallTimeout)
	o.WatchTimeout = cmp.Or(o.WatchTimeout, DefaultWatchTimeout)
	o.PollInterval = cmp.Or(o.PollInterval, DefaultPollInterval)
	o.AuditInterval = cmp.Or(o.AuditInterval, DefaultAuditInterval)
	o.ListConcurrency = cmp.Or(o.ListConcurrency, DefaultListConcurrency)
	o.PermitTimeout = cmp.Or(o.PermitTimeout, DefaultPermitTimeout)
	o.PageSize = cmp.Or(o.PageSize, DefaultPageSize)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, DefaultMaxBackoff)
	o.PermissionInterval = cmp.Or(o.PermissionInterval, DefaultPermissionInterval)
	o.MaxObjectBytes = cmp.Or(o.MaxObjectBytes, DefaultMaxObjectBytes)
	o.MaxObjects = cmp.Or(o.MaxObjects, DefaultMaxObjects)
	o.MaxClusterBytes = cmp.Or(o.MaxClusterBytes, DefaultMaxClusterBytes)
	o.DecodedBytes = cmp.Or(o.DecodedBytes, DefaultDecodedBytes)

	return o, errors.Join(errs...)
}
