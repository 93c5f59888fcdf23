// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the library on real control planes while they fail,
// change and lie: etcd is restored, versions and feature gates are exchanged
// under synced informers, proxies drop events or switch backends, and a soak
// does all that at random.
//
// An oracle of its own decides: quorum lists by client-go, decoded by
// client-go, against what the cache shows and what its events add up to.
//
// Part of it runs with all other tests. The rest is asked for:
//
//	go test ./test/e2e -run TestSoak -soak=10m [-soak.seed=1] -timeout=30m
//	go run ./internal/testenv/versions upgrades
//
// docs/testing.md describes both, and how all tests of real servers are run on
// each version of Kubernetes.
package e2e
