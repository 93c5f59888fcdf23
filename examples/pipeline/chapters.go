// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// promote shows how a version gets to the environments that can be reached.
func (d *demo) promote(ctx context.Context) error {
	if err := d.hub.Create(ctx, pipeline()); err != nil {
		return err
	}
	d.Say("a Pipeline: test in the hub, staging in east, production in west, which has no Secret yet")
	if err := d.reason(ctx, "test", "NotReady"); err != nil {
		return err
	}
	if err := d.reason(ctx, "staging", "Waiting"); err != nil {
		return err
	}
	if err := d.run(ctx, d.Hub, release); err != nil {
		return err
	}
	if err := d.reason(ctx, "staging", "NotReady"); err != nil {
		return err
	}
	if err := d.run(ctx, d.east(), release); err != nil {
		return err
	}
	return d.reason(ctx, "staging", "Ready")
}

// appear shows that each thing that production lacks is named, and that nothing
// but its appearance is needed.
func (d *demo) appear(ctx context.Context) error {
	if err := d.reason(ctx, "production", "NoAccess"); err != nil {
		return err
	}
	west := d.Remotes[1]
	d.Say("the Secret of west is created")
	key := client.ObjectKey{Namespace: namespace, Name: "west"}
	kubeconfig := testenv.Kubeconfig(d.road.Redirect(d.west.Config()))
	if err := fleet.Register(ctx, d.Hub.Client(), key, kubeconfig); err != nil {
		return err
	}
	if err := d.reason(ctx, "production", "NotServed"); err != nil {
		return err
	}
	if err := west.InstallCRDs(ctx, testenv.SimpleCRD(group, rollout)); err != nil {
		return err
	}
	d.Say("the kind Rollout is installed in west")
	if err := d.reason(ctx, "production", "NotFound"); err != nil {
		return err
	}
	if err := west.Client().Create(ctx, object(rollout)); err != nil {
		return err
	}
	d.Say("the Rollout is created")
	if err := d.reason(ctx, "production", "NotReady"); err != nil {
		return err
	}
	if err := d.run(ctx, west, rollout); err != nil {
		return err
	}
	return d.reason(ctx, "production", "Ready")
}

// revoke shows a refusal in the status, and its end.
func (d *demo) revoke(ctx context.Context) error {
	if err := d.west.Grant(ctx, identity); err != nil {
		return err
	}
	d.Say("the right to Rollouts is revoked, and the connection reset, since servers continue open watches")
	d.road.ResetAll()
	if err := d.reason(ctx, "production", "Forbidden"); err != nil {
		return err
	}
	if err := d.west.Grant(ctx, rights...); err != nil {
		return err
	}
	d.Say("it is granted again")
	return d.reason(ctx, "production", "Ready")
}

// kill shows that a cluster that is down is reported, and what happened there
// meanwhile arrives.
func (d *demo) kill(ctx context.Context) error {
	if err := d.east().Kill(); err != nil {
		return err
	}
	d.Say("east's API server is killed")
	if err := d.reason(ctx, "staging", "Unreachable"); err != nil {
		return err
	}
	if err := d.east().StartAPIServer(ctx); err != nil {
		return err
	}
	d.Say("it runs again")
	return d.reason(ctx, "staging", "Ready")
}

// end shows that a Pipeline that is deleted waits for the end of its targets,
// which is all that calls it, and that the caches end with the last Pipeline.
func (d *demo) end(ctx context.Context) error {
	before := len(d.clusters.Usage().Uses)
	if err := d.setFinalizers(ctx, draining); err != nil {
		return err
	}
	if err := d.hub.Delete(ctx, pipeline()); err != nil {
		return err
	}
	d.Say("the Pipeline is deleted, and deletes its targets; the Rollout has a finalizer of its own")
	if err := d.reason(ctx, "production", "Deleting"); err != nil {
		return err
	}
	if err := d.setFinalizers(ctx); err != nil {
		return err
	}
	d.Say("the finalizer of the Rollout is removed")
	took, err := d.Await(ctx, story.Patience, "the Pipeline is gone", func() error {
		p := pipeline()
		if err := d.hub.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("finalizers %q, status %+v", p.Finalizers, p.Status)
	})
	if err != nil {
		return err
	}
	d.OK("the Pipeline is gone, %s later", story.Brief(took))

	took, err = d.Await(ctx, story.Patience, "no cache is left", func() error {
		if n := len(d.clusters.Usage().Uses); n > 0 {
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.OK("%d caches before, none %s later", before, story.Brief(took))
	return nil
}

// setFinalizers does what the controller of the Rollout would do.
func (d *demo) setFinalizers(ctx context.Context, finalizers ...string) error {
	west, o := d.Remotes[1].Client(), object(rollout)
	if err := west.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	o.SetFinalizers(finalizers)
	return west.Update(ctx, o)
}
