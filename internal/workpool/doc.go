// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package workpool bounds how many jobs that wait for remote servers run at
// once, without letting jobs that hang delay the others. It starts no
// goroutine.
//
// # Tests
//
// The leading test is TestNobodyWaitsForThoseThatHang.
package workpool
