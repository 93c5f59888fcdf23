// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package migrating

import (
	"context"
	"maps"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/remote"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

const (
	// SettingsAnnotation is the annotation of a Deployment that names its
	// settings, a ConfigMap.
	SettingsAnnotation = "example.com/settings"
	// StageLabel is the label of a namespace that names the stage it is for.
	StageLabel = "example.com/stage"
	// PausedLabel is the label of what the controller leaves alone.
	PausedLabel = "example.com/paused"
	// SettingsFinalizer is the finalizer of Deployments that have settings.
	SettingsFinalizer = "example.com/settings"
)

// settingsField is the index of Deployments by their settings.
const settingsField = "settings"

// renderer copies the settings of each Deployment into a ConfigMap of its own,
// with the stage of its namespace and the address of the Service of its name.
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
		Owns(&corev1.ConfigMap{}, builder.MatchEveryOwner,
			builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&corev1.ConfigMap{}, r.onSettings()).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.usersIn)).
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.Service{},
			handler.TypedEnqueueRequestsFromMapFunc(usersOfService), predicate.NewTypedPredicateFuncs(hasAddress))).
		WithEventFilter(notPaused).
		WithOptions(runtimecontroller.Options{MaxConcurrentReconciles: 4}).
		WithLogConstructor(func(*reconcile.Request) logr.Logger { return mgr.GetLogger().WithName("render") }).
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
		For(&appsv1.Deployment{}, controller.WithPredicates(relevant)).
		Owns(&corev1.ConfigMap{}, controller.MatchEveryOwner,
			controller.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WatchesHandler(&corev1.ConfigMap{}, controller.PerClusterHandler(cc,
			func(c client.Client) handler.EventHandler { return (&renderer{client: c}).onSettings() })).
		WatchesHandler(&corev1.Namespace{}, controller.PerClusterHandler(cc,
			func(c client.Client) handler.EventHandler {
				return handler.EnqueueRequestsFromMapFunc((&renderer{client: c}).usersIn)
			}), controller.OnlyMetadata).
		WatchesHandler(&corev1.Service{}, controller.PerClusterHandler(cc,
			func(client.Client) handler.TypedEventHandler[*corev1.Service, reconcile.Request] {
				return handler.TypedEnqueueRequestsFromMapFunc(usersOfService)
			}), controller.WithPredicates(predicate.NewTypedPredicateFuncs(hasAddress))).
		WithEventFilter(notPaused).
		WithOptions(runtimecontroller.TypedOptions[controller.Request]{
			MaxConcurrentReconciles: 4,
			LogConstructor: func(*controller.Request) logr.Logger {
				return mgr.GetLogger().WithName("render")
			},
		}).
		Complete(func(c client.Client) reconcile.Reconciler {
			cluster, _ := controller.ClusterOf(c)
			return &renderer{client: c, events: recorder.For(cluster)}
		})
}

// Narrowed has the builder watch the Deployments of two namespaces alone, as a
// manager's cache with ByObject.
func Narrowed(b *controller.Builder) *controller.Builder {
	return b.For(&appsv1.Deployment{},
		controller.Selecting(client.InNamespace("web")),
		controller.Selecting(client.InNamespace("shop"), client.HasLabels{"app"}))
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

// onSettings requests the users of settings that have changed. Settings that
// are deleted may be on their way to be replaced.
func (r *renderer) onSettings() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	request := func(ctx context.Context, settings client.Object, after time.Duration, q queue) {
		of := client.MatchingFields{settingsField: settings.GetName()}
		for _, user := range r.users(ctx, settings.GetNamespace(), of) {
			q.AddAfter(user, after)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { request(ctx, e.Object, 0, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if !maps.Equal(e.ObjectOld.(*corev1.ConfigMap).Data, e.ObjectNew.(*corev1.ConfigMap).Data) {
				request(ctx, e.ObjectNew, 0, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { request(ctx, e.Object, time.Minute, q) },
	}
}

// usersIn is a handler.MapFunc of namespaces.
func (r *renderer) usersIn(ctx context.Context, namespace client.Object) []reconcile.Request {
	return r.users(ctx, namespace.GetName())
}

// usersOfService is a handler.TypedMapFunc.
func usersOfService(_ context.Context, service *corev1.Service) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(service)}}
}

func hasAddress(service *corev1.Service) bool { return service.Spec.ClusterIP != "" }

func (r *renderer) users(ctx context.Context, namespace string, opts ...client.ListOption) []reconcile.Request {
	users := &appsv1.DeploymentList{}
	if err := r.client.List(ctx, users, append(opts, client.InNamespace(namespace))...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Users cannot be listed")
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
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.client.Get(ctx, client.ObjectKey{Name: user.Namespace}, namespace); err != nil {
		return err
	}
	service := &corev1.Service{}
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(user), service); client.IgnoreNotFound(err) != nil {
		return err
	}
	rendered := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: user.Namespace, Name: user.Name}}
	done, err := controllerutil.CreateOrUpdate(ctx, r.client, rendered, func() error {
		rendered.Data = map[string]string{"stage": namespace.Labels[StageLabel], "address": service.Spec.ClusterIP}
		maps.Copy(rendered.Data, settings.Data)
		return controllerutil.SetControllerReference(user, rendered, r.client.Scheme())
	})
	if err == nil && done != controllerutil.OperationResultNone {
		r.events.Eventf(user, rendered, corev1.EventTypeNormal, "Rendered", "Render", "%s %s", rendered.Name, done)
	}
	return err
}
