// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package watchset watches what a list says: a set of watches in many clusters,
// whose whole content is replaced at run time.
//
//	Replace(entries) ──► diff ──► Watch of each entry ──► Event, with its name
//	                      │                                │
//	    unchanged: nothing happens              Options.Handle, or a Source
//
// An [Entry] is a kind in a cluster, narrowed by namespace and selectors, and
// has a name. [Set.Replace] is called with all entries whenever they may have
// changed. Only differences start and stop. [Decode] reads entries from YAML or
// JSON.
//
// # Delivery
//
// Each event names its entry; an object that two entries select is delivered by
// both. Calls for one object of an entry come one at a time. The first event of
// an object is Added. When the handler fails, the object is delivered again
// with back-off, in its newest state; no other object waits for it. Every
// object is delivered in its last state eventually, intermediate states may be
// skipped, and a deletion is delivered if the handler has received the object.
//
// # Clusters
//
// The set makes the clusters of its entries known, and gives each one up with
// its last entry, unless something else needs it. A cluster that does not exist
// yet, cannot be reached or does not serve a kind delays nothing else;
// [Set.Status] and Options.OnStatus report it.
//
// # Tests
//
// TestModel compares random calls with a model.
package watchset
