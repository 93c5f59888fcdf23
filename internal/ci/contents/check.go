// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
)

// report is what a check found.
type report struct {
	files   int // in the index
	history string
	refused []string
}

func (r report) summary() string {
	return fmt.Sprintf("%d files checked in the index; %s", r.files, r.history)
}

// check judges the index of the repository at dir, and the commits between base
// and HEAD. Where base is not part of a complete history, it judges all of it.
func check(dir, base string, images []string) (report, error) {
	repo := repository(dir)
	files, err := repo.index()
	if err != nil {
		return report{}, err
	}
	r := report{files: len(files)}

	committed, history, err := repo.since(base)
	if err != nil {
		return report{}, err
	}
	r.history = history

	all := slices.Concat(files, committed)
	blobs, err := repo.verdicts(all)
	if err != nil {
		return report{}, err
	}
	for _, f := range all {
		if why := blobs[f.blob].refuses(f.path, images); why != "" {
			r.refused = append(r.refused, fmt.Sprintf("%s: %s: %s", f.where, f.path, why))
		}
	}
	return r, nil
}
