// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// ordered reports whether a version is one that API servers make: a number of
// 64 bits without a sign, blanks or zeros in front. Others may be shown, and
// are compared for equality alone. A server that shows one need not take it
// back, so that no informer resumes from there, nor takes one for how far it
// has come.
func ordered(rv string) bool {
	if rv == "" || rv[0] < '1' || rv[0] > '9' {
		return false // at once: an error of strconv is allocated, and reads come here
	}
	_, err := strconv.ParseUint(rv, 10, 64)
	return err == nil
}

// further returns which of two versions, the one that was reached and one that
// was shown since, says how far an informer has come.
func further(reached, shown string) string {
	if ordered(shown) || !ordered(reached) {
		return shown
	}
	return reached
}

// versionless reports whether a version stands for no moment. A watch from
// there begins with all objects, in no order, and does not say where they end.
func versionless(rv string) bool { return rv == "" || rv == "0" }

// compare returns the order of two versions, and whether they have one. Those
// that are no numbers have none: the API allows no conclusion from them.
func compare(a, b string) (order int, comparable bool) {
	if !ordered(a) || !ordered(b) {
		return 0, false
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return order, err == nil
}

// behind reports whether version a is before version b.
func behind(a, b string) bool {
	order, ok := compare(a, b)
	return ok && order < 0
}

// reaches reports whether version a is not before version b.
func reaches(a, b string) bool {
	order, ok := compare(a, b)
	return ok && order >= 0
}

// newer reports whether a, which was shown later, is a later state than b.
// Versions that are no numbers are only told apart, and say nothing where they
// are equal.
func newer(a, b *Object) bool {
	va, oka := a.Version()
	vb, okb := b.Version()
	if oka && okb && va > 0 && vb > 0 {
		return va > vb
	}
	return !sameState(b, a)
}

// older reports whether a is an earlier state than b.
func older(a, b *Object) bool {
	va, oka := a.Version()
	vb, okb := b.Version()
	return oka && okb && va > 0 && va < vb
}
