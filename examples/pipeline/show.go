// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

const (
	namespace = "shop" // of the Pipeline, the Secrets and the targets
	release   = "Release"
	rollout   = "Rollout"                   // a kind that the cluster west has only later
	draining  = "delivery.example/draining" // a finalizer of the Rollout's controller
	group     = "delivery.example"
)

// rights are what the operator needs in a remote cluster.
var rights = []rbacv1.PolicyRule{
	{
		APIGroups: []string{group},
		Resources: []string{"releases", "rollouts"},
		Verbs:     []string{"get", "list", "watch", "patch", "delete"},
	},
	definitions,
	apiServices,
	identity,
}

// definitions and apiServices are the rights by which a kind that is installed
// later is noticed within a second, and the former that by which the objects of
// one that is removed are known to be gone. Without them the first takes
// RetryInterval, and the objects are kept.
var (
	definitions = rbacv1.PolicyRule{
		APIGroups: []string{"apiextensions.k8s.io"},
		Resources: []string{"customresourcedefinitions"},
		Verbs:     []string{"list", "watch"},
	}
	apiServices = rbacv1.PolicyRule{
		APIGroups: []string{"apiregistration.k8s.io"},
		Resources: []string{"apiservices"},
		Verbs:     []string{"list", "watch"},
	}
)

// identity is the right to know which cluster it is.
var identity = rbacv1.PolicyRule{
	APIGroups:     []string{""},
	Resources:     []string{"namespaces"},
	ResourceNames: []string{"kube-system"},
	Verbs:         []string{"get"},
}

// demo is the demonstration.
type demo struct {
	story.Story
	*fleet.Fleet

	clusters *clustercache.ClusterCache
	hub      client.Client
	west     fleet.User  // as whom the operator works in west
	road     *fleet.Road // by which only the operator reaches west
}

// show starts a hub and two remote clusters, runs the operator, and shows how a
// version is promoted.
func show(ctx context.Context, local fleet.Local, out *story.Printer, log logr.Logger) (err error) {
	f, err := local.Start(ctx, out, "A hub and two remote clusters", "hub", "east", "west")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	d := &demo{Story: story.Story{Printer: out}, Fleet: f}
	if err := d.furnish(ctx); err != nil {
		return err
	}
	mgr, cc, err := newOperator(f.Hub.Config(), log)
	if err != nil {
		return err
	}
	d.clusters = cc
	if d.hub, err = client.New(f.Hub.Config(), client.Options{Scheme: mgr.GetScheme()}); err != nil {
		return err
	}

	return story.During(ctx, mgr.Start, d.tell)
}

// furnish installs the kinds, and creates the objects that are there from the
// beginning.
func (d *demo) furnish(ctx context.Context) error {
	err := d.Hub.InstallCRDs(ctx, testenv.SimpleCRD(pipelineKind.Group, pipelineKind.Kind))
	for _, c := range d.Clusters()[:2] {
		err = errors.Join(err,
			c.InstallCRDs(ctx, testenv.SimpleCRD(group, release)),
			fleet.Create(ctx, c.Client(), namespace, object(release)))
	}
	if err = errors.Join(err, fleet.Create(ctx, d.Remotes[1].Client(), namespace)); err != nil {
		return err
	}
	east, err := d.east().AddUser(ctx, "pipelines", rights...)
	if err != nil {
		return err
	}
	if d.west, err = d.Remotes[1].AddUser(ctx, "pipelines", rights...); err != nil {
		return err
	}
	if d.road, err = d.NewRoad(d.Remotes[1]); err != nil {
		return err
	}
	return fleet.Register(ctx, d.Hub.Client(), client.ObjectKey{Namespace: namespace, Name: "east"}, east.Kubeconfig())
}

func (d *demo) east() fleet.Cluster { return d.Remotes[0] }

// object returns the object named web of a kind, without a version.
func object(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(group + "/v1")
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName("web")
	return o
}

// pipeline returns the Pipeline of the demonstration.
func pipeline() *Pipeline {
	target := func(cluster, kind string) []Target {
		return []Target{{
			Cluster:    cluster,
			APIVersion: group + "/v1",
			Kind:       kind,
			Namespace:  namespace,
			Name:       "web",
		}}
	}
	p := &Pipeline{Spec: PipelineSpec{
		Version: "v1",
		Environments: []Environment{
			{Name: "test", Targets: target("", release)},
			{Name: "staging", Targets: target("east", release)},
			{Name: "production", Targets: target("west", rollout)},
		},
	}}
	p.SetGroupVersionKind(pipelineKind)
	p.Namespace, p.Name = namespace, "web"

	return p
}

// tell runs the demonstration from the operator's start.
func (d *demo) tell(ctx context.Context) error {
	return d.Tell(ctx,
		story.Chapter{Title: "A version is promoted as soon as its targets are ready", Tell: d.promote},
		story.Chapter{Title: "Production: no Secret, no kind, no object", Tell: d.appear},
		story.Chapter{Title: "A right is revoked, and granted again", Tell: d.revoke},
		story.Chapter{Title: "A cluster goes down, and returns", Tell: d.kill},
		story.Chapter{Title: "The last Pipeline goes, after its targets", Tell: d.end},
	)
}

// reason waits until the status of an environment has a reason; Ready stands
// for none.
func (d *demo) reason(ctx context.Context, environment, reason string) error {
	took, err := d.Await(ctx, story.Patience, environment+" is "+reason, func() error {
		p := pipeline()
		if err := d.hub.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for _, e := range p.Status.Environments {
			if e.Name == environment && (e.Reason == reason || e.Ready && reason == "Ready") {
				return nil
			}
		}
		return fmt.Errorf("status %+v", p.Status)
	})
	if err != nil {
		return err
	}
	d.OK("%s is %s, %s later", environment, reason, story.Brief(took))
	return nil
}

// run does what the controller of a target would do: it reports the version
// that is wanted as the one that runs.
func (d *demo) run(ctx context.Context, in fleet.Cluster, kind string) error {
	o := object(kind)
	if err := in.Client().Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	version, _, err := unstructured.NestedString(o.Object, "spec", "version")
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"status":{"version":%q}}`, version)
	d.Say("%s %s of %s runs %s", kind, o.GetName(), in.Name(), version)
	return in.Client().Status().Patch(ctx, o, client.RawPatch("application/merge-patch+json", patch))
}
