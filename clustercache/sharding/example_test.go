// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// A reconciler asks whether it is responsible, and bounds its writes by the
// ownership.
func Example() {
	hub := &rest.Config{Host: "http://hub", Transport: fakeapi.New(fakeapi.Options{}).Transport()}
	s, err := sharding.New(hub, sharding.Options{
		Namespace: "default",
		Name:      "rollout",
		Identity:  "rollout-7d4b9c-x2x5v", // the name of the Pod
	})
	if err != nil {
		panic(err)
	}
	cluster := client.ObjectKey{Namespace: "fleet", Name: "east"}
	gained := make(chan struct{})
	s.Subscribe(func(e sharding.Event) {
		switch {
		case e.Type == sharding.Gained && e.Slot == s.Slot(cluster):
			close(gained)
		case e.Type == sharding.Warm || e.Type == sharding.Draining:
			e.Done() // there is no cache to fill, and nothing is under way
		}
	})
	stopped := make(chan error)
	go func() { stopped <- s.Start(context.Background()) }() // or mgr.Add(s)

	<-gained
	fmt.Println("owns east:", s.Owns(cluster))
	ctx, cancel, err := s.Context(context.Background(), cluster)
	if err == nil {
		_, bounded := ctx.Deadline()
		fmt.Println("writes are bounded:", bounded)
		cancel()
	}

	_ = s.Close(context.Background())
	_, _, err = s.Context(context.Background(), cluster)
	fmt.Println("not the owner any more:", errors.Is(err, sharding.ErrNotOwner), <-stopped)
	// Output:
	// owns east: true
	// writes are bounded: true
	// not the owner any more: true <nil>
}
