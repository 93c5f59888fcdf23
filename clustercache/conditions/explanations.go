// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"cmp"
	"strings"
	"unicode"

	"github.com/fleetcache/fleetcache/clustercache/status"
)

// Reasons of this package, besides phases, the reasons of status.Cluster
// and those of clustercache.ReasonOf.
const (
	// ReasonSynced means that every watch is synced and current.
	ReasonSynced = "Synced"
	// ReasonNoWatches means that there is no watch to report about.
	ReasonNoWatches = "NoWatches"

	reasonUnknown        = "Unknown"
	reasonUnknownCluster = "UnknownCluster"
	reasonNotConnected   = "NotConnected"
)

// A message has a sentence and at most maxNamed long parts of maxPart bytes
// each, so that it stays below 1024 bytes.
const (
	maxPart  = 250
	maxNamed = 3
)

const refusedRequest = "The API server refuses the request."

// explanations has the sentences for the reasons that status.Explain lacks.
var explanations = map[string]string{
	"Pending":      "The cluster is known, and no attempt to connect has begun.",
	"Connecting":   "The first attempt to connect is under way.",
	"Degraded":     "The cluster is connected, and its last probes failed.",
	"Disconnected": "The cluster is not connected.",
	"Gone":         "The cluster's connection was ended.",

	"NotStarted":         "The operator has not begun to connect to clusters.",
	reasonUnknownCluster: "The cluster is not in use, or does not exist.",
	reasonNotConnected:   "The cluster is not connected.",

	"NotWatched":    "Nothing watches the kind.",
	"NotSynced":     "The first list has not ended.",
	"Stale":         "The cached state is older than permitted.",
	"Unsupported":   "The cache cannot answer for such a selection.",
	"Closed":        "The operator has stopped.",
	ReasonNoWatches: "Nothing is watched.",

	"BadRequest":            refusedRequest,
	"Conflict":              refusedRequest,
	"Expired":               refusedRequest,
	"Invalid":               refusedRequest,
	"MethodNotAllowed":      refusedRequest,
	"NotAcceptable":         refusedRequest,
	"RequestEntityTooLarge": refusedRequest,
	"UnsupportedMediaType":  refusedRequest,
}

// explain returns the sentence for a reason, and nothing for another word.
func explain(reason string) string { return cmp.Or(explanations[reason], status.Explain(reason)) }

// explained returns the reason if it is a known one, and otherwise Unknown: the
// reason of an API status is a word that the server chose.
func explained(reason string) string {
	if explain(reason) == "" {
		return reasonUnknown
	}
	return reason
}

// clip makes text printable and truncates it to limit bytes.
func clip(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) <= limit {
		return text
	}

	const ellipsis = "…"
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis
}
