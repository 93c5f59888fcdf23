// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// clientGoInformers uses the informers of client-go's dynamicinformer package.
type clientGoInformers struct {
	client    *http.Client
	url       string
	dynamic   dynamic.Interface
	informers []cache.SharedIndexInformer
}

func openClientGo(config *rest.Config) (watcher, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	d, err := dynamic.NewForConfigAndClient(config, c)
	if err != nil {
		return nil, err
	}
	return &clientGoInformers{client: c, url: config.Host, dynamic: d}, nil
}

func (w *clientGoInformers) watch(ctx context.Context, k kind, namespaces ...string) error {
	if err := knock(ctx, w.client, w.url); err != nil {
		return err
	}
	w.informers = nil
	for _, ns := range namespaces {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		informer := dynamicinformer.NewFilteredDynamicInformer(w.dynamic, k.resource, ns, 0, indexers, nil).Informer()
		go informer.RunWithContext(ctx)
		w.informers = append(w.informers, informer)
	}

	for _, informer := range w.informers {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return errors.New("informer did not sync")
		}
	}
	return nil
}

func (w *clientGoInformers) handle(ctx context.Context) error {
	for _, informer := range w.informers {
		r, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {}})
		if err != nil {
			return err
		}
		if !cache.WaitForCacheSync(ctx.Done(), r.HasSynced) {
			return errors.New("handler did not sync")
		}
	}

	return nil
}

func (w *clientGoInformers) count(context.Context) (int, error) {
	n := 0
	for _, informer := range w.informers {
		n += len(informer.GetStore().ListKeys())
	}
	return n, nil
}
