// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package simulation

// The race detector makes each run take ten times as long.
const (
	usual     = 100
	pairsEach = 5
)
