// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package simulation

// usual is how many seeds a run has by default.
const usual = 500
