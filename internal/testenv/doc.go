// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package testenv runs real Kubernetes control planes, an etcd and a
// kube-apiserver each, for tests and examples.
//
// # Usage
//
// A test starts as many clusters as it wants:
//
//	func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }
//
//	func TestSomething(t *testing.T) {
//		clusters := testenv.Start(t, 2)
//		hub, remote := clusters[0], clusters[1]
//		...
//	}
//
// and an example does it by [Run], which needs no testing.TB.
//
// # Faults
//
// A [Cluster] can be killed, restarted on the same port with the same data and
// certificates, given another CA or an expired certificate, wiped, paused,
// rolled back to an earlier state, and restored from a backup.
// [APIServer.RestartAs] exchanges the version of a server or its feature gates,
// and [Cluster.AddReplica] adds one, of another version if need be.
// [APIServer.Proxy] puts a proxy between a client and a server that refuses,
// stalls, slows or cuts connections (package faultproxy). [User.Deny] takes
// rights away, [ServiceAccount.Revoke] a token. [APIServer.Requests] tells what
// reached a server.
//
// # Programs
//
// The programs are found or built by package assets, in this order: the version
// that FLEETCACHE_KUBERNETES names, KUBEBUILDER_ASSETS, what setup-envtest has
// installed, an own build in the user's cache directory. The build takes
// minutes once; [Main] has it done before the time of the tests begins to run,
// and
//
//	go run ./internal/testenv/install
//
// does it by hand; with versions as arguments, or with "all", for those.
//
// # Nothing survives
//
// Env.Stop, or the end of the test, ends all processes and removes all files. A
// program that dies without it, by a signal, a panic or a test time-out, leaves
// nothing either: a watchdog process, which notices, kills and removes what is
// left within a moment, and on Linux the kernel kills the servers at once. A
// test binary that is interrupted by SIGINT or SIGTERM ends its clusters before
// it dies. A program that uses [Run] and wants that cancels the context on
// these signals.
//
// # Environment
//
//   - FLEETCACHE_KUBERNETES: the version of Kubernetes to run, such as 1.34.4
//     or 1.34, unless a test asks for one by [WithKubernetes] or [Version].
//   - KUBEBUILDER_ASSETS: directory of the programs; nothing else is looked at.
//   - XDG_CACHE_HOME, XDG_DATA_HOME, HOME: where own builds are kept, and where
//     setup-envtest installs.
//   - TMPDIR: where the files of the clusters are, some 130 MB each.
//
// The package works on Linux and macOS. On macOS the ports of a server that is
// down are not held, and the servers of a killed program live until its
// watchdog has noticed.
package testenv
