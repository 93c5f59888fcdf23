// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// Defaults of [Options].
const (
	DefaultSlots         = 256
	DefaultRenewInterval = 2 * time.Second
	DefaultLeaseDuration = 15 * time.Second
	DefaultSettleTime    = 3 * time.Second
	DefaultWarmTimeout   = 30 * time.Second
	DefaultDrainTimeout  = 10 * time.Second
)

// maxSlots bounds the Leases of a group.
const maxSlots = 4096

// Options configure a Sharding. Namespace, Name and Identity are required.
type Options struct {
	// Namespace is where the Leases of the group are, on the hub. Required.
	Namespace string
	// Name is the name of the group: of all replicas that share the clusters.
	// It begins the names of the Leases, which have suffixes, so that it may
	// also be that of a Lease for leader election. Required; a DNS label.
	Name string
	// Program is what the replicas run. A group is of the program that founded
	// it, and replicas of another one do not join: see [NameError]. Two
	// operators that are built from one package need to set it, if they could
	// meet under one name. Defaults to the import path of the main package,
	// without a major version.
	Program string
	// Identity is the name of this replica, which no other that runs at the
	// same time may have: that of its Pod. If it is stable, as in a
	// StatefulSet, a replica that restarts gets its former clusters back.
	// Required; a DNS subdomain.
	Identity string
	// Slots is into how many slots clusters are hashed. Slots change hands as a
	// whole, so there should be 20 for each replica. All replicas of a group
	// must agree: see [GroupError]. Defaults to 256; at most 4096.
	Slots int
	// RenewInterval is the time between two renewals of the replica's Lease,
	// the only writes in steady state. Defaults to 2 s.
	RenewInterval time.Duration
	// LeaseDuration is how long other replicas have to see no renewal before
	// they take over from this one. The replica itself stops after two thirds
	// of it, counted from when it sent the last renewal that succeeded. Whole
	// seconds, at least five times RenewInterval. Defaults to 15 s.
	LeaseDuration time.Duration
	// SettleTime is how long a new replica has to be known before it gets
	// clusters, so that replicas that start together share at once. It must
	// have renewed its Lease meanwhile, so one that ends at once gets none.
	// Negative means none. Defaults to 3 s.
	SettleTime time.Duration
	// WarmTimeout bounds how long a slot that moves between two replicas which
	// both stay waits for subscribers of the new owner to fill their caches.
	// Slots of a replica that ends never wait. Negative means not at all.
	// Defaults to 30 s.
	WarmTimeout time.Duration
	// DrainTimeout bounds how long a slot waits for subscribers to end their
	// work on it before it goes to another replica. Negative means not at all.
	// Defaults to 10 s.
	DrainTimeout time.Duration
	// Standbys is how many replicas are prepared to take over each slot. They
	// stay the same while what replicas hold is even. After one has gone, the
	// next that joins gets its places; if none does within four times
	// LeaseDuration, the others get them. By default there are none.
	Standbys int
	// Weight is this replica's share of the clusters, in percent of that of an
	// ordinary one. Defaults to 100; at most 1000.
	Weight int
	// ClusterWeight returns how heavy a cluster is, from 1 to 1000: for example
	// its thousands of objects, or its informers. Replicas then own the same
	// weight in place of the same number of clusters. 0 means that this replica
	// does not know, since it neither owns the cluster nor stands by for it: it
	// is enough if one replica does, and clusters that none knows have the mean
	// weight. It is asked for all clusters of SetClusters once a minute, on a
	// goroutine of its own. A change by up to a quarter is ignored. By default
	// all clusters weigh the same.
	ClusterWeight func(cluster client.ObjectKey) int
	// Selector is which clusters the group shares, if these are not all: the
	// label selector, for example, by which its replicas discover them. Its
	// Lease says so, and replicas with another one do not join: see
	// [GroupError].
	Selector string
	// Logger receives a line for each change of ownership at V(1), and for
	// failed requests to the hub. Defaults to controller-runtime's global
	// logger.
	Logger logr.Logger
}

// complete validates the options and sets the defaults.
func (o *Options) complete() error {
	for _, check := range []struct {
		field    string
		value    string
		validate func(string) []string
	}{
		{"Namespace", o.Namespace, validation.IsDNS1123Label},
		{"Name", o.Name, validation.IsDNS1123Label},
		{"Identity", o.Identity, validation.IsDNS1123Subdomain},
		{"Identity", o.memberName(), validation.IsDNS1123Subdomain},
	} {
		if check.value == "" && check.field != "Identity" {
			return &OptionError{Field: check.field, Err: errors.New("required")}
		}
		if problems := check.validate(check.value); len(problems) > 0 {
			return &OptionError{Field: check.field, Err: errors.New(strings.Join(problems, "; "))}
		}
	}

	o.Program = cmp.Or(o.Program, mainPackage())
	o.Slots = cmp.Or(o.Slots, DefaultSlots)
	o.RenewInterval = cmp.Or(o.RenewInterval, DefaultRenewInterval)
	o.LeaseDuration = cmp.Or(o.LeaseDuration, DefaultLeaseDuration)
	o.SettleTime = cmp.Or(o.SettleTime, DefaultSettleTime)
	o.WarmTimeout = cmp.Or(o.WarmTimeout, DefaultWarmTimeout)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, DefaultDrainTimeout)
	o.Weight = cmp.Or(o.Weight, protocol.DefaultWeight)
	for _, d := range []*time.Duration{&o.SettleTime, &o.WarmTimeout, &o.DrainTimeout} {
		*d = max(*d, 0)
	}
	if o.Logger.GetSink() == nil {
		o.Logger = ctrllog.Log
	}

	switch {
	case o.Slots < 1 || o.Slots > maxSlots:
		return &OptionError{Field: "Slots", Err: fmt.Errorf("%d is not between 1 and %d", o.Slots, maxSlots)}
	case o.RenewInterval < 0:
		return &OptionError{Field: "RenewInterval", Err: errors.New("is negative")}
	case o.LeaseDuration%time.Second != 0:
		return &OptionError{Field: "LeaseDuration", Err: errors.New("is not in whole seconds")}
	case o.LeaseDuration < 5*o.RenewInterval:
		return &OptionError{Field: "LeaseDuration", Err: errors.New("is less than five times RenewInterval")}
	case o.Standbys < 0:
		return &OptionError{Field: "Standbys", Err: errors.New("is negative")}
	case o.Weight < 1 || o.Weight > protocol.MaxWeight:
		err := fmt.Errorf("%d is not between 1 and %d", o.Weight, protocol.MaxWeight)
		return &OptionError{Field: "Weight", Err: err}
	}
	return nil
}

// ownFor is how long after sending a renewal the replica owns its slots. Clocks
// may differ in rate by the rest of LeaseDuration.
func (o *Options) ownFor() time.Duration { return ownFor(o.LeaseDuration) }

func ownFor(leaseDuration time.Duration) time.Duration { return leaseDuration * 2 / 3 }

// returnTime is how long seats of a standby that has gone stay vacant, so that
// the replica that comes next fills its caches, and not all the others theirs:
// as long as a Pod takes to restart, 1 min by default.
func (o *Options) returnTime() time.Duration { return 4 * o.LeaseDuration }

// writeTimeout bounds one write: a renewal that takes longer renews nothing, and
// one that is slow is no failure. Renewals do not wait for one another.
func (o *Options) writeTimeout() time.Duration { return o.ownFor() }

// majorVersion is the end of the import path of a module from v2 on.
var majorVersion = regexp.MustCompile(`/v[0-9]+$`)

// mainPackage returns what identifies the program that runs.
var mainPackage = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Path == "" || info.Path == "command-line-arguments" {
		return filepath.Base(os.Args[0])
	}
	if rest, ok := strings.CutPrefix(info.Path, info.Main.Path); ok {
		return majorVersion.ReplaceAllString(info.Main.Path, "") + rest
	}
	return info.Path
})

// charterName returns the name of the group's Lease.
func (o *Options) charterName() string { return o.Name + "-sharding" }

// memberName returns a name for the member Lease that no other process has.
func (o *Options) memberName() string {
	return fmt.Sprintf("%s-member-%s-%08x", o.Name, o.Identity, rand.Uint32())
}

func (o *Options) config() protocol.Config {
	return protocol.Config{
		Charter:   o.charterName(),
		Program:   o.Program,
		Member:    o.memberName(),
		Slot:      func(n int) string { return fmt.Sprintf("%s-slot-%03d", o.Name, n) },
		Slots:     o.Slots,
		Renew:     o.RenewInterval,
		OwnFor:    o.ownFor(),
		DeadAfter: o.LeaseDuration,
		Settle:    o.SettleTime,
		WarmFor:   o.WarmTimeout,
		DrainFor:  o.DrainTimeout,
		Standbys:  o.Standbys,
		Return:    o.returnTime(),
		Weight:    o.Weight,
		Selector:  o.Selector,
	}
}
