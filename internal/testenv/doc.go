// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package testenv runs real Kubernetes control planes for tests and examples.
// Each consists of an etcd and a kube-apiserver.
//
//	Start, Run ──► Env ── watchdog: cleans up if this process dies
//	                │
//	             Cluster ── etcd: pause, kill, Snapshot, Rollback, Restore
//	                │
//	            APIServer, replicas: restart, certificates, versions
//	                ▲
//	                ├── Proxy, Gateway: disturb the connections
//	                │
//	   Config of the administrator, a User or a ServiceAccount
//
// # Usage
//
// A test starts as many clusters as it needs:
//
//	func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }
//
//	func TestSomething(t *testing.T) {
//		clusters := testenv.Start(t, 2)
//		hub, remote := clusters[0], clusters[1]
//		...
//	}
//
// An example uses [Run], which needs no testing.TB.
//
// # Faults
//
// A [Cluster] can be killed, restarted on the same port with the same data and
// certificates, given another CA or an expired certificate, wiped, paused,
// rolled back to an earlier state, and restored from a backup.
// [APIServer.RestartAs] changes the version of a server or its feature gates,
// and [Cluster.AddReplica] adds a server, possibly of another version.
// [APIServer.Proxy] puts a proxy between a client and a server that refuses,
// stalls, slows or cuts connections (package faultproxy). [User.Deny] revokes
// rights, [ServiceAccount.Revoke] a token. [APIServer.Requests] returns the
// requests that reached a server.
//
// # Programs
//
// Package assets finds or builds the programs, in this order: the version that
// FLEETCACHE_KUBERNETES names, KUBEBUILDER_ASSETS, a version installed by
// setup-envtest, our own build in the user's cache directory. The build takes
// minutes, once. [Main] runs it before the time limit of the tests starts, and
//
//	go run ./internal/testenv/install
//
// runs it by hand, also for other versions if they are given as arguments, or
// for all of them with "all".
//
// # Nothing survives
//
// Env.Stop, or the end of the test, ends all processes and removes all files. A
// program that dies before, by a signal, a panic or a test timeout, leaves
// nothing behind either: a watchdog process detects its death, kills the
// servers and removes the files within a moment, and on Linux the kernel kills
// the servers at once. A test binary that is interrupted by SIGINT or SIGTERM
// ends its clusters before it dies. For the same effect, a program that uses
// [Run] must cancel the context on these signals.
//
// # Environment
//
//   - FLEETCACHE_KUBERNETES: the version of Kubernetes to run, such as 1.34.4
//     or 1.34, unless a test asks for one by [WithKubernetes] or [Version].
//   - KUBEBUILDER_ASSETS: directory of the programs; nothing else is looked at.
//   - XDG_CACHE_HOME, XDG_DATA_HOME, HOME: where our builds are kept, and where
//     setup-envtest installs.
//   - TMPDIR: where the files of the clusters are, some 130 MB each.
//
// The package works on Linux and macOS. On macOS the port of a server that is
// down is not reserved, and the servers of a killed program run until its
// watchdog has detected the death.
package testenv
