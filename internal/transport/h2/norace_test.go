// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package h2_test

// stackSlack is how much more stack a goroutine waiting in Read may have than
// one waiting on a channel.
const stackSlack = 1.2
