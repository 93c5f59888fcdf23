// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package migrating holds the code of docs/migrating.md, so that it is compiled
// and run: each file is one section.
package migrating
