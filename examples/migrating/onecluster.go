// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package migrating

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/remote"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

const (
	// SettingsAnnotation is the annotation of a Deployment that names its
	// settings, a ConfigMap.
	SettingsAnnotation = "example.com/settings"
	// PausedLabel is the label of what the controller leaves alone.
	PausedLabel = "example.com/paused"
	// SettingsFinalizer is the finalizer of Deployments that have settings.
	SettingsFinalizer = "example.com/settings"
)

// settingsField is the index of Deployments by their settings.
const settingsField = "settings"

// renderer copies the settings of each Deployment into a ConfigMap of its own.
type renderer struct {
	client client.Client
	events events.EventRecorder
}

// OneCluster runs the renderer in the manager's cluster.
func OneCluster(mgr ctrl.Manager) error {
	r := &renderer{client: mgr.GetClient(), events: mgr.GetEventRecorder("render")}
	if err := mgr.GetFieldIndexer().IndexField(
		context.Background(), &appsv1.Deployment{}, settingsField, settingsOf); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("render").
		For(&appsv1.Deployment{}, builder.WithPredicates(relevant)).
		Owns(&corev1.ConfigMap{}, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.usersOf)).
		WithEventFilter(notPaused).
		WithOptions(runtimecontroller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

// EveryCluster runs the renderer in all clusters of a resolver.
func EveryCluster(mgr ctrl.Manager, clusters resolver.Resolver) error {
	cc, err := clustercache.SetupWithManager(mgr, clustercache.Options{
		Resolver: clusters,
		Discover: true,
		Indexes: []clustercache.Index{{
			GVK:    appsv1.SchemeGroupVersion.WithKind("Deployment"),
			Field:  settingsField,
			Values: settingsOf,
		}},
	})
	if err != nil {
		return err
	}
	recorder, err := remote.NewRecorder(cc, remote.RecorderOptions{Controller: "example.com/render"})
	if err != nil {
		return err
	}
	if err := mgr.Add(recorder); err != nil {
		return err
	}
	return controller.NewControllerManagedBy(mgr, cc).Named("render").
		For(&appsv1.Deployment{}, relevant).
		Owns(&corev1.ConfigMap{}, predicate.ResourceVersionChangedPredicate{}).
		Watches(&corev1.ConfigMap{}, controller.EnqueueFromMapFunc(cc, func(c client.Client) handler.MapFunc {
			return (&renderer{client: c}).usersOf
		})).
		WithEventFilter(notPaused).
		WithOptions(runtimecontroller.TypedOptions[controller.Request]{MaxConcurrentReconciles: 4}).
		Complete(func(c client.Client) reconcile.Reconciler {
			return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
				cluster, _ := controller.ClusterFromContext(ctx)
				return (&renderer{client: c, events: recorder.For(cluster)}).Reconcile(ctx, request)
			})
		})
}

// WatchOwners has the builder request every owner of a kind that an object has,
// as Owns with builder.MatchEveryOwner and builder.OnlyMetadata.
func WatchOwners(b *controller.Builder, owned, owner schema.GroupVersionKind) *controller.Builder {
	return b.Watches(clustercache.Kind(owned), controller.EnqueueOwner(owner))
}

// relevant lets updates pass that change the spec, the settings or the deletion.
var relevant = predicate.Or(
	predicate.GenerationChangedPredicate{},
	predicate.AnnotationChangedPredicate{},
)

// notPaused rejects the events of objects with PausedLabel.
var notPaused = predicate.NewPredicateFuncs(func(obj client.Object) bool {
	_, paused := obj.GetLabels()[PausedLabel]
	return !paused
})

func settingsOf(obj client.Object) []string {
	if name := obj.GetAnnotations()[SettingsAnnotation]; name != "" {
		return []string{name}
	}
	return nil
}

// usersOf is a handler.MapFunc.
func (r *renderer) usersOf(ctx context.Context, settings client.Object) []reconcile.Request {
	users := &appsv1.DeploymentList{}
	err := r.client.List(ctx, users,
		client.InNamespace(settings.GetNamespace()), client.MatchingFields{settingsField: settings.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Users of settings cannot be listed")
	}
	var requests []reconcile.Request
	for i := range users.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&users.Items[i])})
	}
	return requests
}

// Reconcile implements reconcile.Reconciler.
func (r *renderer) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	user := &appsv1.Deployment{}
	if err := r.client.Get(ctx, request.NamespacedName, user); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !user.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(user, SettingsFinalizer) {
			return reconcile.Result{}, r.client.Update(ctx, user)
		}
		return reconcile.Result{}, nil
	}
	names := settingsOf(user)
	if len(names) == 0 {
		return reconcile.Result{}, nil
	}
	settings := &corev1.ConfigMap{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: user.Namespace, Name: names[0]}, settings); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if controllerutil.AddFinalizer(user, SettingsFinalizer) {
		if err := r.client.Update(ctx, user); err != nil {
			return reconcile.Result{}, err
		}
	}

	return reconcile.Result{}, r.render(ctx, user, settings)
}

func (r *renderer) render(ctx context.Context, user *appsv1.Deployment, settings *corev1.ConfigMap) error {
	rendered := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: user.Namespace, Name: user.Name}}
	done, err := controllerutil.CreateOrUpdate(ctx, r.client, rendered, func() error {
		rendered.Data = settings.Data
		return controllerutil.SetControllerReference(user, rendered, r.client.Scheme())
	})
	if err == nil && done != controllerutil.OperationResultNone {
		r.events.Eventf(user, rendered, corev1.EventTypeNormal, "Rendered", "Render", "%s %s", rendered.Name, done)
	}
	return err
}
