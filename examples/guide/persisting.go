// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !solaris && !aix

package guide

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
)

// KeepCaches has caches kept in a file, and returns the function that closes
// it, which is called once Start has returned.
func KeepCaches(path string, o *clustercache.Options) (done func()) {
	store, err := bolt.Open(path, bolt.Options{Later: true}) // also while another process has the file
	if err != nil {
		ctrl.Log.Error(err, "Caches are not kept") // the operator works as well, and lists
		return func() {}
	}
	o.Persist = persist.Options{Store: store}
	return func() {
		if err := store.Close(); err != nil {
			ctrl.Log.Error(err, "File of caches was not closed")
		}
	}
}
