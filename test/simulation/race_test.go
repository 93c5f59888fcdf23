// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package simulation

// usual is the default number of seeds of a run: the race detector makes each
// take ten times as long.
const usual = 150
