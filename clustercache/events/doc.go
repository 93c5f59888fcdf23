// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package events has the events that a ClusterCache delivers, of objects,
// clusters and watches, the selection of objects whose events are wanted, and
// the subscriptions that deliver them to a handler:
//
//	pods := events.Selection{Kinds: []client.Object{&corev1.Pod{}}, Watch: true}
//	s, err := cc.Subscribe(pods, func(e events.Object) { ... })
//	s.Start()
//
// docs/watching.md says how events come to a handler, and which are merged.
package events
