// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// verdict is what the server has said of an informer's requests, and what no
// later failure takes back. A server that refuses a right, and then is busy,
// restarts or cannot be reached, has not granted the right again, and meanwhile
// live reads may have shown a newer state than the store's.
//
//	                 refusal for good   401           any other failure
//	nothing          refused            rejected      nothing
//	one 401          refused            unauthorized  one 401
//	unauthorized     refused            unauthorized  unauthorized
//	refused          refused            refused       refused
//
// An accepted list or watch alone lifts it, so its zero value replaces it then;
// a watch once it has shown something, or was silent for a moment (granting).
// Neither does a live read, which needs another right, nor new access, which
// leads to a new attempt.
type verdict struct {
	refusal      error // the latest refusal for good: waiting does not help
	unauthorized error // the latest 401
	rejections   int   // 401s; the first may be a credential that is being replaced
}

// after returns the verdict after a further failure.
func (v verdict) after(err error) verdict {
	if permanent(err) {
		v.refusal = err
	}
	if apierrors.IsUnauthorized(err) {
		v.unauthorized = err
		v.rejections++
	}
	return v
}

// stands returns why the store cannot be brought up to date, or nil.
func (v verdict) stands() error {
	if v.refusal == nil && v.rejections > 1 {
		return v.unauthorized
	}
	return v.refusal
}
