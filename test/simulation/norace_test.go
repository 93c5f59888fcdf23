// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package simulation

// usual is the default number of seeds of a run.
const usual = 500
