// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package assets

import "path/filepath"

// FindReporting is Find with another time between lines of progress.
var FindReporting = find

// Target returns where the own build is kept.
func Target() (string, error) {
	r, err := pinned()
	return r.target, err
}

// Pinned returns the versions that are built.
func Pinned() (kubernetes, etcd string, err error) {
	r, err := pinned()
	return r.kubernetes, r.etcd, err
}

func pinned() (recipe, error) {
	root, err := moduleDir()
	if err != nil {
		return recipe{}, err
	}
	return controlPlane(filepath.Join(root, defaultModule))
}
