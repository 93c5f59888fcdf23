// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import "errors"

var (
	// ErrMalformed indicates that the response is not a discovery document: it
	// is not JSON, or another kind of page.
	ErrMalformed = errors.New("not a discovery document")
	// ErrTooLarge indicates that a discovery document exceeds our limits.
	ErrTooLarge = errors.New("discovery document is too large")
	// ErrUnavailable indicates that a kind may exist, but that the API server
	// could not reach the extension server of the kind's group to find out. It
	// is not a "no match" error: a later attempt may succeed.
	ErrUnavailable = errors.New("discovery of the API group is unavailable")

	errReset = errors.New("what is known was forgotten meanwhile")
)
