// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/examples/rollout/api"
)

// fieldOwner is the field manager of what is applied.
const fieldOwner = client.FieldOwner("fleetcache-rollout")

// remote is one cluster of a Rollout.
type remote struct {
	clusters *clustercache.ClusterCache
	key      client.ObjectKey
}

// wait reports the state of a cluster whose wave has not begun.
func (r remote) wait(ctx context.Context, wanted *content) api.ClusterStatus {
	actual, err := r.read(ctx, wanted, clustercache.CacheOnly)
	if err != nil {
		return api.ClusterStatus{State: api.ClusterWaiting}
	}
	return api.ClusterStatus{State: api.ClusterWaiting, Version: versionOf(actual, wanted)}
}

// bring applies the objects that are not as wanted, and reports the state of
// the cluster. A cluster that is not there is no error, since its event leads
// to another call.
func (r remote) bring(ctx context.Context, wanted *content) (api.ClusterStatus, error) {
	actual, err := r.read(ctx, wanted, clustercache.PreferCache)
	if err == nil {
		err = r.apply(ctx, wanted, actual)
	}
	status := api.ClusterStatus{Version: versionOf(actual, wanted)}
	switch {
	case isUnavailable(err):
		status.State, status.Message = api.ClusterUnavailable, r.whyUnavailable(err)
		return status, nil
	case err != nil:
		status.State, status.Message = api.ClusterFailed, err.Error()
		return status, err
	}
	status.State = api.ClusterReady
	for _, object := range wanted.objects {
		state, why := judge(actual[idOf(object)])
		if state == api.ClusterFailed || state == api.ClusterProgressing && status.State == api.ClusterReady {
			status.State, status.Message = state, fmt.Sprintf("%s %s: %s", object.GetKind(), object.GetName(), why)
		}
	}
	return status, nil
}

// read returns the objects of all Rollouts that the cluster has, of the wanted
// kinds. Once the watches have synced, the cache answers.
func (r remote) read(
	ctx context.Context, wanted *content, mode clustercache.ReadMode,
) (map[id]*unstructured.Unstructured, error) {
	actual := map[id]*unstructured.Unstructured{}
	for _, kind := range wanted.kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := r.clusters.Cluster(r.key).Reader().List(ctx, list, mode, managed); err != nil {
			return nil, err
		}
		for i := range list.Items {
			actual[idOf(&list.Items[i])] = &list.Items[i]
		}
	}
	return actual, nil
}

// apply applies the wanted objects that are missing or different, and replaces
// them in actual by what the server returned.
func (r remote) apply(ctx context.Context, wanted *content, actual map[id]*unstructured.Unstructured) error {
	for _, object := range wanted.objects {
		if current := actual[idOf(object)]; current != nil && has(current.Object, object.Object) {
			continue
		}
		remote, err := r.clusters.Cluster(r.key).Client()
		if err != nil {
			return err
		}
		applied := object.DeepCopy()
		err = remote.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), fieldOwner, client.ForceOwnership)
		if err != nil {
			return err
		}
		actual[idOf(object)] = applied
	}
	return nil
}

// versionOf returns the version that the wanted objects have in the cluster.
func versionOf(actual map[id]*unstructured.Unstructured, wanted *content) string {
	version := ""
	for i, object := range wanted.objects {
		current := actual[idOf(object)]
		if current == nil {
			return ""
		}
		found := current.GetAnnotations()[api.VersionAnnotation]
		if i > 0 && found != version {
			return ""
		}
		version = found
	}
	return version
}

func isUnavailable(err error) bool {
	return errors.Is(err, clustercache.ErrNotConnected) || errors.Is(err, clustercache.ErrUnknownCluster)
}

// whyUnavailable returns why a cluster cannot be used.
func (r remote) whyUnavailable(err error) string {
	status, unknown := r.clusters.Cluster(r.key).Status()
	switch {
	case unknown != nil:
		return err.Error()
	case status.LastError != nil:
		return fmt.Sprintf("%s (%s): %v", status.Phase, status.Reason, status.LastError)
	case status.Reason != "":
		return fmt.Sprintf("%s (%s)", status.Phase, status.Reason)
	}
	return string(status.Phase)
}
