// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package scenarios holds no code but tests: what a library that serves
// several clusters, owners and controllers at once has to do, proved on real
// clusters.
//
// The behaviours are numbered after the systems that were looked at to find
// them. The first number says of which kind a system is, the second counts:
//
//   - 000: an operator that takes informers for whatever its objects name, and
//     drops those nobody asks for any more;
//   - 001: a controller runtime whose controllers share streams of events;
//   - 003: an operator that rolls out to clusters that come, go and are not
//     ready yet;
//   - 004: an engine whose set of watches is replaced while it runs.
//
// A test is named after the number and the promise, so that one can compare: go
// test -v -run 'Test/001'.
package scenarios
