// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"strings"
	"unicode"
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

// explanations has a sentence for each reason. docs/runbook.md begins its
// sections with those of clusters.
var explanations = map[string]string{
	"Pending":      "The cluster is known, and no attempt to connect has begun.",
	"Connecting":   "The first attempt to connect is under way.",
	"Degraded":     "The cluster is connected, and its last probes failed.",
	"Disconnected": "The cluster is not connected.",
	"Gone":         "The cluster's connection was ended.",

	"NoAccess":            "Nothing describes yet how the cluster is reached, or it is not ready to be.",
	"ClusterNotFound":     "No object in the hub describes this cluster.",
	"BadAccess":           "What describes the access is there and cannot be understood.",
	"Refused":             "Our own policy forbids what the access, its address or the server asks for.",
	"Unhealthy":           "Checks of the API server's own health fail.",
	"Unauthorized":        "The API server rejects our credentials.",
	"Forbidden":           "The API server knows us and does not allow this.",
	"NotFound":            "What was asked does not exist at this address.",
	"Throttled":           "The API server asks us to slow down.",
	"TLS":                 "The TLS handshake failed.",
	"TLSUnknownAuthority": "The server's certificate is signed by an authority that the access does not trust.",
	"TLSBadName":          "The server's certificate is for another name.",
	"TLSExpired":          "The server's certificate has expired, or our clock is ahead.",
	"TLSNotYetValid":      "The server's certificate is not valid yet, or our clock is behind.",
	"Unreachable":         "No connection can be made, or it broke.",
	"Timeout":             "The answer did not come in time.",
	"NotKubernetes":       "Something else than a Kubernetes API answers at this address.",
	"Server":              "The API server answers that it failed.",
	"BadConfig":           "The access is understood and cannot be used.",
	"Canceled":            "The attempt was called off.",
	"Cut":                 "Our own side ended the request, as it got other access or was stopped.",
	reasonUnknown:         "The attempt failed in a way that fits no other reason.",

	// The same word is a reason of a cluster and of a watch.
	"Released": "Nothing needs the cluster any more, so that its connection was ended.",

	"NotStarted":         "The operator has not begun to connect to clusters.",
	reasonUnknownCluster: "The cluster is not in use, or does not exist.",
	reasonNotConnected:   "The cluster is not connected.",

	"NotServed":     "The cluster does not serve the kind.",
	"NotWatchable":  "The kind can be read and not watched.",
	"NotWatched":    "Nothing watches the kind.",
	"NotSynced":     "The first list has not ended.",
	"Stale":         "The cached state is older than permitted.",
	"OverBudget":    "The objects exceed a limit of the operator.",
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

// explained returns the reason if it is a known one, and otherwise Unknown: the
// reason of an API status is a word that the server chose.
func explained(reason string) string {
	if _, known := explanations[reason]; known {
		return reason
	}
	return reasonUnknown
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
