// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package h2_test

// stackSlack is how much more stack a goroutine waiting in Read may have than
// one waiting on a channel. Under the race detector every stack frame is
// larger, which leads to the next power of two.
const stackSlack = 2.2
