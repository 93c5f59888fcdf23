// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package subjects

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/fleetcache/fleetcache/bench/measure"
)

// dynamicInformers has a factory of dynamic informers for each cluster.
type dynamicInformers struct {
	factories []dynamicinformer.DynamicSharedInformerFactory
	//nolint:containedctx // the informers'
	ctx    context.Context
	cancel context.CancelFunc
}

func openDynamic(ctx context.Context, clusters []measure.Cluster) (measure.Subject, error) {
	d := &dynamicInformers{}
	d.ctx, d.cancel = context.WithCancel(ctx)
	for _, c := range clusters {
		client, err := dynamic.NewForConfig(ConfigOf(c))
		if err != nil {
			return nil, err
		}
		d.factories = append(d.factories, dynamicinformer.NewDynamicSharedInformerFactory(client, 0))
	}

	return d, nil
}

// Watch implements measure.Subject.
func (d *dynamicInformers) Watch(ctx context.Context, kinds []measure.Kind) error {
	var synced []cache.InformerSynced
	for _, f := range d.factories {
		for _, k := range kinds {
			synced = append(synced, f.ForResource(gvrOf(k)).Informer().HasSynced)
		}
		f.Start(d.ctx.Done())
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return errors.New("informers did not sync")
	}
	return nil
}

// Count implements measure.Subject.
func (d *dynamicInformers) Count(_ context.Context, k measure.Kind) (int, error) {
	n := 0
	for _, f := range d.factories {
		n += len(f.ForResource(gvrOf(k)).Informer().GetStore().ListKeys())
	}
	return n, nil
}

// ResourceVersion implements measure.Subject.
func (d *dynamicInformers) ResourceVersion(_ context.Context, m measure.Mark) (string, error) {
	return stored(d.factories[m.Cluster].ForResource(gvrOf(m.Kind)).Informer(), m)
}

// stored returns the version that an informer of client-go has of an object.
func stored(informer cache.SharedIndexInformer, m measure.Mark) (string, error) {
	o, found, err := informer.GetStore().GetByKey(m.Namespace + "/" + m.Name)
	if err != nil {
		return "", err
	}
	if !found {
		return "", fmt.Errorf("%s/%s not found", m.Namespace, m.Name)
	}
	metadata, err := meta.Accessor(o)
	if err != nil {
		return "", err
	}
	return metadata.GetResourceVersion(), nil
}

// Listen implements measure.Listener.
func (d *dynamicInformers) Listen(_ context.Context, k measure.Kind, handle func(int, measure.Object)) error {
	for i, f := range d.factories {
		if err := listen(f.ForResource(gvrOf(k)).Informer(), i, handle); err != nil {
			return err
		}
	}
	return nil
}

// listen adds a handler to an informer of client-go.
func listen(informer cache.SharedIndexInformer, cluster int, handle func(int, measure.Object)) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, o any) {
		if m, err := meta.Accessor(o); err == nil {
			handle(cluster, m)
		}
	}})
	return err
}

// Stop implements measure.Subject.
func (d *dynamicInformers) Stop() error {
	d.cancel()
	for _, f := range d.factories {
		f.Shutdown()
	}
	return nil
}
