// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package fleet reads the objects of a kind in many clusters at once: for
// dashboards, reports and metrics, and for decisions that depend on several
// clusters.
//
//	var total fleet.Total
//	counts := map[string]int{}
//	for pod, err := range fleet.List(ctx, cc, &corev1.Pod{}, client.InNamespace("shop"), &total) {
//		if err != nil {
//			log.Error(err, "Not counted") // it names the cluster
//			continue
//		}
//		app, _ := pod.Label("app")
//		counts[app]++
//	}
//	fmt.Println(counts, &total) // 997 of 1000 clusters, oldest 12s
//
// [List] is the List of controller-runtime's client with a loop instead of a
// list to fill, since the objects of a thousand clusters need not be in memory,
// or decoded, together; and with an error for each cluster instead of one,
// since some cluster is always away. [ByCluster] yields whole clusters, also
// those without objects.
//
// # Partial answers
//
// Nothing is left out in silence. Each selected cluster is yielded with its
// objects or with its error, once; one that goes away meanwhile, one whose
// labels are not known yet, and one that another replica serves are errors,
// too. [Total] counts them all. Leaving the loop at the first error is the
// caller's choice:
//
//	if err != nil {
//		return err // nothing, rather than the answer of a part of the fleet
//	}
//
// # Where answers come from
//
// Each cluster answers as its reader does (clustercache.ReadMode): from the
// cache where an informer covers the read and is trusted, and otherwise, by
// default, from its API server. Beware of kinds that nothing watches: then a
// read of a thousand clusters is a thousand requests, Options.Concurrency at a
// time. With clustercache.CacheOnly there are none, and such clusters are
// errors. The Origin of each Answer reports where it comes from and how old it
// is.
//
// What the cache answers costs no decoding until [Item.Object] is called:
// selecting and counting read packed objects.
//
// # Consistency
//
// The clusters are chosen when an iteration begins, and read one after the
// other. The objects of one cluster have the state of one moment; there is no
// moment for all of them, and their resourceVersions cannot be compared.
//
// # Tests
//
// The leading test is TestAnswerEqualsThatOfTheReader.
// TestEachClusterOfARandomFleetIsYieldedOnce compares random fleets with a
// model.
package fleet
