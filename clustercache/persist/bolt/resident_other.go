// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix && !linux

package bolt

import "go.etcd.io/bbolt"

// release does nothing.
func release(*bbolt.Tx) {}
