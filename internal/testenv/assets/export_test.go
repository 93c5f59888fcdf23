// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package assets

import "path/filepath"

// FindReporting is Find with a configurable interval between lines of progress.
var FindReporting = find

// Target returns the directory of our own build.
func Target() (string, error) {
	r, err := pinned()
	return r.target, err
}

// Pinned returns the versions that our own build has.
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
