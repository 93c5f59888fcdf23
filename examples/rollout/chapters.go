// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/examples/rollout/api"
)

// restFor is how long requests are counted while nothing happens, from settleFor
// after the last change.
const (
	restFor   = 10 * time.Second
	settleFor = time.Second
)

// show is the demonstration from the operator's start.
func (d *demo) show(ctx context.Context) error {
	return d.Tell(ctx,
		story.Chapter{Title: "Version 1 goes out: first canary, then the rest", Tell: d.first},
		story.Chapter{Title: "West comes: first its Secret, then its control plane", Tell: d.join},
		story.Chapter{Title: "Nothing happens, and no requests", Tell: d.rest},
		story.Chapter{Title: "An object is deleted in east", Tell: d.drift},
		story.Chapter{Title: "Version 2 fails in canary", Tell: d.stop},
		story.Chapter{Title: "Version 3 repairs it, and the rollout goes on", Tell: d.goOn},
	)
}

// first shows that a wave begins when the one before it is ready.
func (d *demo) first(ctx context.Context) error {
	v1, err := module("v1")
	if err != nil {
		return err
	}
	for _, obj := range []client.Object{v1, &api.Rollout{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name},
		Spec: api.RolloutSpec{Module: "web", Waves: []api.Wave{
			{Name: "first", Clusters: []string{"canary"}},
			{Name: "rest", Clusters: []string{"east", "west"}},
		}},
	}} {
		if err := d.hub.Create(ctx, obj); err != nil {
			return err
		}
	}
	d.Say("Module web has a ConfigMap and a Deployment; Rollout web has the waves first (canary) and rest (east, west)")
	if _, err := d.until(ctx, api.Progressing, "canary Progressing v1, east Waiting, west Waiting"); err != nil {
		return err
	}
	if _, err := d.status(ctx); err != nil {
		return err
	}
	if err := d.expectWrites(d.east, time.Time{}, 0, "east waits, and has no request to change anything"); err != nil {
		return err
	}
	if err := d.become(ctx, d.canary); err != nil {
		return err
	}
	took, err := d.until(ctx, api.Progressing, "canary Ready v1, east Progressing v1, west Unavailable")
	if err != nil {
		return err
	}
	d.OK("the wave rest began %s after the Deployment of canary was available", story.Brief(took))
	if err := d.become(ctx, d.east); err != nil {
		return err
	}
	if _, err := d.until(ctx, api.Progressing, "canary Ready v1, east Ready v1, west Unavailable"); err != nil {
		return err
	}
	rollout, err := d.status(ctx)
	if err != nil {
		return err
	}
	why := rollout.Status.Clusters[2].Message
	return d.Expect(strings.Contains(why, "secret not found"), "the status names what west lacks", why)
}

// join shows that a cluster joins when its Secret and its control plane are
// there.
func (d *demo) join(ctx context.Context) error {
	if err := fleet.Register(ctx, d.hub, key(d.west), d.west.Kubeconfig()); err != nil {
		return err
	}
	why := ""
	took, err := d.Await(ctx, story.Patience, "a status that says that west cannot be reached", func() error {
		rollout := &api.Rollout{}
		if err := d.hub.Get(ctx, web, rollout); err != nil {
			return err
		}
		if why = rollout.Status.Clusters[2].Message; !strings.Contains(why, "Unreachable") {
			return fmt.Errorf("west: %q", why)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.OK("the Secret was noticed, and that no API server is there (%s, after %s)", why, story.Brief(took))
	done := d.Working("starting west's API server")
	err = d.west.StartAPIServer(ctx)
	done()
	if err != nil {
		return err
	}
	took, err = d.until(ctx, api.Progressing, "canary Ready v1, east Ready v1, west Progressing v1")
	if err != nil {
		return err
	}
	d.OK("west has version 1, %s after its API server was ready", story.Brief(took))
	if err := d.become(ctx, d.west); err != nil {
		return err
	}
	took, err = d.until(ctx, api.Complete, "canary Ready v1, east Ready v1, west Ready v1")
	if err != nil {
		return err
	}
	d.OK("the Rollout is Complete, %s after the Deployment of west was available", story.Brief(took))
	return nil
}

// rest shows that clusters are not asked for what they report by themselves.
func (d *demo) rest(ctx context.Context) error {
	begin := time.Now().Add(settleFor)
	if err := story.Sleep(ctx, settleFor+restFor); err != nil {
		return err
	}
	rows := [][]string{{"CLUSTER", "PROBES", "LISTS", "WATCHES", "OTHER READS", "WRITES"}}
	asked := 0
	for _, remote := range d.fleet.Remotes {
		t, err := trafficSince(remote, begin)
		if err != nil {
			return err
		}
		rows = append(rows, []string{
			remote.Name(), fmt.Sprint(t.probes), fmt.Sprint(t.lists), fmt.Sprint(t.watches), fmt.Sprint(t.gets),
			fmt.Sprint(t.writes),
		})
		asked += t.lists + t.watches + t.gets + t.writes
	}
	d.Say("the operator's requests in %s, from the %ss of the API servers:", restFor, d.fleet.Record())
	d.Table(rows)
	return d.Expect(asked == 0, "readiness is watched, and never polled", fmt.Sprintf("%d requests for objects", asked))
}

// drift shows that an object that vanishes is applied again.
func (d *demo) drift(ctx context.Context) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: "web"}}
	if err := d.east.Client().Delete(ctx, deployment); err != nil {
		return err
	}
	took, err := d.until(ctx, api.Progressing, "canary Ready v1, east Progressing v1, west Ready v1")
	if err != nil {
		return err
	}
	d.OK("the Deployment of east exists again, and the status says so, %s after it was deleted", story.Brief(took))
	if err := d.become(ctx, d.east); err != nil {
		return err
	}
	_, err = d.until(ctx, api.Complete, "canary Ready v1, east Ready v1, west Ready v1")
	return err
}

// stop shows that a wave that fails is the last one.
func (d *demo) stop(ctx context.Context) error {
	begin := time.Now()
	if err := d.release(ctx, "v2"); err != nil {
		return err
	}
	if _, err := d.until(ctx, api.Progressing, "canary Progressing v2, east Waiting v1, west Waiting v1"); err != nil {
		return err
	}
	if err := d.fail(ctx, d.canary); err != nil {
		return err
	}
	took, err := d.until(ctx, api.Failed, "canary Failed v2, east Waiting v1, west Waiting v1")
	if err != nil {
		return err
	}
	d.OK("the Rollout is Failed, %s after the Deployment of canary was", story.Brief(took))
	if _, err := d.status(ctx); err != nil {
		return err
	}
	for _, remote := range []fleet.Cluster{d.east, d.west} {
		if err := d.expectWrites(remote, begin, 0, remote.Name()+" keeps version 1"); err != nil {
			return err
		}
	}
	return nil
}

// goOn shows that a version that works lets the Rollout go on.
func (d *demo) goOn(ctx context.Context) error {
	if err := d.release(ctx, "v3"); err != nil {
		return err
	}
	if _, err := d.until(ctx, api.Progressing, "canary Progressing v3, east Waiting v1, west Waiting v1"); err != nil {
		return err
	}
	if err := d.become(ctx, d.canary); err != nil {
		return err
	}
	took, err := d.until(ctx, api.Progressing, "canary Ready v3, east Progressing v3, west Progressing v3")
	if err != nil {
		return err
	}
	d.OK("the wave rest began %s after the Deployment of canary was available", story.Brief(took))
	for _, remote := range []fleet.Cluster{d.east, d.west} {
		if err := d.become(ctx, remote); err != nil {
			return err
		}
	}
	if _, err := d.until(ctx, api.Complete, "canary Ready v3, east Ready v3, west Ready v3"); err != nil {
		return err
	}
	d.OK("version 3 is Ready in all clusters")
	_, err = d.status(ctx)
	return err
}
