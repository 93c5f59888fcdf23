// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package transport provides the http.RoundTripper through which all requests
// to one remote cluster go.
//
// A [Transport] lives as long as its cluster, while the access underneath it
// changes: credentials, certificate authority and address arrive as a
// rest.Config through [Transport.Swap] or a proven [Candidate]. Each
// rest.Config gets a generation, with http.Transports and connections that it
// shares with no other generation. New requests use the newest generation.
// Running streams stay on the generation they started on until they end, so a
// rotated token interrupts no watch.
//
//	Client, StreamClient, Do        Probe*, Candidate.Get
//	           │                              │
//	  Transport.roundTrip               Transport.ask
//	  token bucket, except for watches        │
//	           │                              │
//	           │                          entrance
//	           │                     current generation,
//	Transport.enterAs                or the candidate's
//	current generation                        │
//	           └──────────────┬───────────────┘
//	                          │  ticket
//	                  Transport.exchange ── send ── sendWith
//	                          │
//	       ┌──────────────────┼────────────────────┐
//	    watches          config's own            lane
//	   over HTTP/2       round trippers       all the rest
//	       │                  └─ throughLane ──────┤
//	  h2.Transport                          http.Transport
//	       └──────────────────┬────────────────────┘
//	                        conn   one TCP connection,
//	                          │    cut when its generation ends
//	                        body   made by Transport.admit: budget,
//	                               proof of life, classified errors
//
// Every rule that applies to all requests of a cluster is enforced here, once:
// the cluster's token bucket, the refusal of redirects, body budgets, the cap
// on Retry-After, one dial for many concurrent requests, the proof-of-life
// clock and the classification of errors. No error text of this package
// contains a header, a URL query, a token or bytes chosen by the remote side.
//
// Requests are addressed to the stable placeholder of [Transport.URL]. The
// transport substitutes the real server's host and path prefix.
package transport
