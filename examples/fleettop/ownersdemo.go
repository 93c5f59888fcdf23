// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

const (
	demoGroup    = "operator"
	demoClusters = 60
	demoSlots    = 24
	// demoLease and demoRenewal speed up the demonstration: by default a replica
	// renews its Lease every 2 s, and others take over after 15 s.
	demoLease, demoRenewal = 6 * time.Second, time.Second
	// demoPatience is how long a change of the group may take on a machine that is
	// busy.
	demoPatience = time.Minute
)

// sharing is the demonstration of who has what: replicas in this process that
// share clusters, which exist by name alone.
type sharing struct {
	story.Story
	*group

	hub      fleet.Cluster
	log      logr.Logger
	replicas []*replica
	seen     owners
}

// replica is one replica of a group.
type replica struct {
	*sharding.Sharding
	name  string
	next  http.RoundTripper
	cut   atomic.Bool // nothing arrives any more, as if it had been killed
	ended chan error
}

// RoundTrip is the network between the replica and the hub.
func (r *replica) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.cut.Load() {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	return r.next.RoundTrip(request)
}

// shareLocal starts a hub and replicas, and shows who has what while one is cut
// off, and one is drained.
func shareLocal(ctx context.Context, local fleet.Local, out *story.Printer, log logr.Logger) (err error) {
	f, err := local.Start(ctx, out, "A hub", "hub")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	g, err := newGroup(f.Hub.Config(), "default", demoGroup)
	if err != nil {
		return err
	}
	s := &sharing{
		Story: story.Story{Printer: out},
		group: g,
		hub:   f.Hub,
		log:   log,
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	return s.Tell(ctx,
		story.Chapter{Title: "Three replicas share sixty clusters", Tell: s.share},
		story.Chapter{Title: "What one more would move", Tell: s.dryRun},
		story.Chapter{Title: "operator-1 is cut off from the hub", Tell: s.cutOne},
		story.Chapter{Title: "operator-2 is drained", Tell: s.drainOne},
	)
}

// start starts a replica.
func (s *sharing) start(name string) error {
	r := &replica{name: name, ended: make(chan error, 1)}
	config := rest.CopyConfig(s.hub.Config())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		r.next = next
		return r
	})
	share, err := sharding.New(config, sharding.Options{
		Namespace:     "default",
		Name:          demoGroup,
		Identity:      name,
		Slots:         demoSlots,
		Standbys:      1,
		LeaseDuration: demoLease,
		RenewInterval: demoRenewal,
		DrainTimeout:  demoRenewal,
		Logger:        s.log,
	})
	if err != nil {
		return err
	}
	r.Sharding = share
	share.SetClusters(sharedClusters())
	go func() { r.ended <- share.Start(context.Background()) }() // until stop
	s.replicas = append(s.replicas, r)
	return nil
}

// sharedClusters returns the names of the clusters.
func sharedClusters() (all []client.ObjectKey) {
	for i := range demoClusters {
		all = append(all, client.ObjectKey{Namespace: "fleet", Name: fmt.Sprintf("cluster-%02d", i)})
	}
	return all
}

// stop ends all replicas. One that is cut off cannot leave.
func (s *sharing) stop() error {
	var ending sync.WaitGroup
	errs := make([]error, len(s.replicas))
	for i, r := range s.replicas {
		r.cut.Store(false)
		ending.Go(func() { errs[i] = errors.Join(r.Close(context.Background()), <-r.ended) })
	}
	ending.Wait()
	return errors.Join(errs...)
}

// until waits until the Leases say what is expected, and prints who has what.
func (s *sharing) until(ctx context.Context, expected string, check func() error) error {
	took, err := s.Await(ctx, demoPatience, expected, func() error {
		if s.seen = s.look(ctx, s.seen); s.seen.err != nil {
			return s.seen.err
		}
		return check()
	})
	if err != nil {
		return err
	}
	s.OK("%s, after %s", expected, story.Brief(took))
	s.Print("\n" + strings.Join(s.seen.lines(0, 0, nil), "\n") + "\n\n")
	return nil
}

// settled returns an error unless each slot has an owner and a standby, and is
// to keep them.
func (s *sharing) settled() error {
	for _, x := range s.seen.Slots {
		if x.Owner == "" || x.Reason != "" || len(x.Standbys) == 0 {
			return fmt.Errorf("slot %d: owner %q, standbys %q, %s", x.Slot, x.Owner, x.Standbys, x.Reason)
		}
	}
	return nil
}

// agreed returns an error unless the replicas say the same as the Leases.
func (s *sharing) agreed() error {
	for _, c := range sharedClusters() {
		for _, r := range s.replicas {
			if slot := s.seen.Slots[r.Slot(c)]; r.Owns(c) != (slot.Owner == r.name) {
				return fmt.Errorf("%s of %s: by the Leases its owner is %q", r.name, c, slot.Owner)
			}
		}
	}
	return s.settled()
}

func (s *sharing) share(ctx context.Context) error {
	for i := range 3 {
		if err := s.start(fmt.Sprintf("operator-%d", i)); err != nil {
			return err
		}
	}
	return s.until(ctx, "each cluster has an owner and a standby, and that agrees", func() error {
		if len(s.seen.Slots) == 0 || len(s.seen.Replicas) < 3 {
			return errors.New("not all replicas have joined")
		}
		for _, r := range s.seen.Replicas {
			if r.State != "" {
				return errors.New(r.Identity + " is " + r.State)
			}
		}
		return s.agreed()
	})
}

func (s *sharing) dryRun(ctx context.Context) error {
	return s.predict(ctx, &whatIf{replicas: 4, standbys: -1}, s.Printer)
}

func (s *sharing) cutOne(ctx context.Context) error {
	s.replicas[1].cut.Store(true)
	err := s.until(ctx, "the clusters of operator-1 have no owner, and it says why", func() error {
		for _, x := range s.seen.Slots {
			if x.Owner == "" && strings.HasPrefix(x.Reason, "operator-1 has it, and has not renewed its Lease for ") {
				return nil
			}
		}
		return errors.New("all are owned")
	})
	if err != nil {
		return err
	}
	return s.until(ctx, "the others own them", func() error {
		if len(s.seen.Replicas) != 2 {
			return errors.New("operator-1 is a member")
		}
		for _, x := range s.seen.Slots {
			if x.Owner == "" {
				return fmt.Errorf("slot %d: %s", x.Slot, x.Reason)
			}
		}
		return nil
	})
}

func (s *sharing) drainOne(ctx context.Context) error {
	s.replicas[2].SetDraining(true)
	return s.until(ctx, "operator-0 owns all clusters, and operator-2 drains", func() error {
		for _, r := range s.seen.Replicas {
			if r.Identity == "operator-2" && (r.State != "draining" || r.Owned > 0) {
				return fmt.Errorf("operator-2 is %q, and has %d slots", r.State, r.Owned)
			}
			if r.Identity == "operator-0" && r.Owned < demoSlots {
				return fmt.Errorf("operator-0 has %d slots", r.Owned)
			}
		}
		return nil
	})
}
