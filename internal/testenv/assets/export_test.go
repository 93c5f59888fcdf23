// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package assets

// FindReporting is Find with another time between lines of progress.
var FindReporting = find

// Target returns where the own build is kept.
func Target() (string, error) {
	r, err := loadRecipe()
	return r.target, err
}

// Versions returns the versions that are built.
func Versions() (kubernetes, etcd string, err error) {
	r, err := loadRecipe()
	return r.kubernetes, r.etcd, err
}
