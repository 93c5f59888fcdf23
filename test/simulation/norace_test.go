// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package simulation

const (
	usual     = 500 // the default number of seeds of a run
	pairsEach = 1   // of so many pairs of faults one is run
)
