// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package resolvertest helps to test resolvers: a hub whose faults can be
// switched on, and the objects that conventions describe clusters with.
package resolvertest
