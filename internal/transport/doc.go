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
// # From a request to a connection
//
//	Client, StreamClient             Probe*, Candidate.Get (the proof)
//	           │                                │
//	       roundTrip                           ask
//	  token bucket, except                      │
//	      for watches                           │
//	           └────────────────┬───────────────┘
//	                            ▼
//	                        dispatch  ◄────────────┐
//	                            │                  │
//	          1. entrance: admission to a sender   │ nothing was sent, and
//	             of a generation                   │ there is another way
//	                            │                  │
//	          2. exchange: send on that sender ────┘
//	                            │
//	      ┌─────────────────────┼─────────────────────┐
//	     mux              config's own              lanes
//	GETs, over HTTP/2    round trippers         all the rest
//	      │                     └─ throughLane ───────┤
//	 h2.Transport                              http.Transport
//	      └─────────────────────┬─────────────────────┘
//	                          conn   one TCP connection, cut when its
//	                            │    generation ends
//	                          body   made by admit: budget, proof of life,
//	                                 classified errors
//
// What a generation owns:
//
//	generation     one access, in use or a Candidate's
//	├─ lanes       an http.Transport each, with one HTTP/2 connection
//	│  └─ dialing  one request makes that connection; others wait for it
//	├─ mux         an h2.Transport; nil where only net/http will do
//	└─ cuts        the connections and calls that end with the generation
//
// At rest there is one connection: watches, lists, reads of objects, probes and
// identity queries share it. A write opens a lane, whose connection is closed
// after 30 s without a request.
//
// A generation is retired when the next one takes its place. It then admits
// nothing more, requests that wait in it enter the next one, and it ends with
// its last request. A Candidate's generation is used, with the connection over
// which it was proven, by [Candidate.Use].
//
// # Rules
//
// Every rule that applies to all requests of a cluster is enforced here, once:
// the cluster's token bucket, the refusal of redirects, body budgets, the cap
// on Retry-After, one dial for many concurrent requests, the proof-of-life
// clock and the classification of errors. No error text of this package
// contains a header, a URL query, a token or bytes chosen by the remote side.
//
// Requests are addressed to the stable placeholder of [Transport.URL]. The
// transport substitutes the real server's host and path prefix.
//
// # Tests
//
// TestRandomRotationsSendNothingTwiceOrWithOldCredentials covers rotations.
// TestErrorsHoldNothingOfTheRemoteSideNorOfTheRequest covers errors.
// TestDecompressedBodiesAreBounded covers budgets.
// TestRandomLifeLeavesNothingBehind covers leaks.
package transport
