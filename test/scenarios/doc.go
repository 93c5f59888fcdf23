// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package scenarios contains only tests. They prove on real clusters what a
// library that serves several clusters, owners and controllers at once has to
// do.
//
// The behaviors are numbered by the systems that were studied to find them. The
// first number is the kind of system, the second a counter:
//
//   - 000: an operator that takes informers for the kinds that its objects
//     name, and releases informers that are no longer needed;
//   - 001: a controller runtime whose controllers share streams of events;
//   - 003: an operator that rolls out to clusters that appear, disappear and
//     are not ready yet;
//   - 004: an engine whose set of watches is replaced while it runs.
//
// Each test is named after its number and the promise, for comparison: go test
// -v -run 'Test/001'.
package scenarios
