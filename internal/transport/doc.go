// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package transport holds the one RoundTripper of one remote cluster.
//
// A [Transport] stays for the cluster's life while what lies under it changes:
// credentials, certificate authority and address come as a rest.Config through
// [Transport.Swap] or a proven [Candidate], and each of them gets a generation:
// an http.Transport of its own, shared with nobody. New requests use the newest
// generation; running streams stay on theirs until they end, so that a rotated
// token costs no watch.
//
// Everything that all requests of a cluster must obey is enforced here, once:
// the cluster's token bucket, refusal of redirects, body budgets, the cap on
// Retry-After, one dial for many concurrent requests, the proof-of-life clock
// and the classification of errors. No error text of this package holds a
// header, a URL query, a token or bytes chosen by the remote side.
//
// Requests are addressed to the stable placeholder of [Transport.URL]; host and
// path prefix of the real server are put in on the way.
package transport
