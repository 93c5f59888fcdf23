// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package meter estimates how much memory a JSON document takes once it is
// decoded into a Go type, while its bytes pass by. Three bytes of a document,
// "{},", can be a kilobyte in memory, so that the size of a body bounds
// nothing.
//
// The estimate is meant to be an upper bound: it knows the sizes of the type's
// elements, and allows for slices and maps that grow. It does not check the
// document. Decoders refuse what is no JSON before they allocate anything.
package meter
