// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the library on real control planes while they fail, change
// and lie: etcd is restored, versions and feature gates change under synced
// informers, proxies drop events or switch backends, and a soak test does all
// of that at random.
//
// An independent oracle decides: quorum lists, made and decoded by client-go,
// are compared with the contents of the cache and with the accumulated events.
//
// Part of it runs with all other tests. The rest runs on request:
//
//	go test ./test/e2e -run TestSoak -soak=10m [-soak.seed=1] -timeout=30m
//	go run ./internal/testenv/versions upgrades
//
// docs/testing.md describes both, and how to run the suites on real servers
// with each version of Kubernetes.
package e2e
