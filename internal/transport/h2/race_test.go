// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package h2_test

// stackSlack is how much more stack a goroutine that waits in Read may have
// than one that waits on a channel. Under the race detector every frame is
// larger, which makes the next power of two of it.
const stackSlack = 2.2
