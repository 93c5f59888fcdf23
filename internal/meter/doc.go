// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package meter estimates how much memory a JSON document takes once it is
// decoded into a Go type, as its bytes pass by. Three bytes of a document,
// "{},", can take a kilobyte of memory, so the size of a body is no bound.
//
// The estimate is meant as an upper bound: it uses the sizes of the type's
// elements and allows for the growth of slices and maps. It does not validate
// the document. Decoders refuse invalid JSON before they allocate anything.
//
// # Tests
//
// The leading test is TestHazardSmallDocumentsThatAreLarge.
// TestUsualDocumentsAreFarFromTheLimits covers what must pass.
package meter
