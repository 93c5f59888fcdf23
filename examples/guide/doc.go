// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package guide holds the code of the guides in docs: each block of Go on those
// pages is a part of this package, and its tests run each function.
package guide
