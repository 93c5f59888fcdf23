// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"

	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// Phase is the state of a cluster's connection.
type Phase string

// Phases of a cluster.
const (
	// PhasePending means that the resolver has no access yet. Nothing is
	// dialed.
	PhasePending Phase = "Pending"
	// PhaseConnecting means that the first attempt to connect is under way.
	PhaseConnecting Phase = "Connecting"
	// PhaseReady means that the cluster answers.
	PhaseReady Phase = "Ready"
	// PhaseDegraded means that the cluster is connected, but its last probes
	// failed, or the API server reports that checks of its own health fail
	// (ReasonUnhealthy), for however long; or that it does not prove its
	// identity, however it answers probes.
	PhaseDegraded Phase = "Degraded"
	// PhaseDisconnected means that the cluster cannot be reached, does not
	// answer, or refuses the credentials. Attempts continue.
	PhaseDisconnected Phase = "Disconnected"
	// PhaseRefused means that policy forbids access to the cluster.
	PhaseRefused Phase = "Refused"
	// PhaseGone means that the cluster does not exist, or that nothing needs it
	// any more; the reason distinguishes the two.
	PhaseGone Phase = "Gone"
)

// Reasons of a phase, besides the classes of network failures: Unauthorized,
// Forbidden, Unreachable, Timeout, Server, NotKubernetes, Throttled, TLS,
// TLSUnknownAuthority, TLSBadName, TLSExpired, TLSNotYetValid, and so on.
const (
	// ReasonNoAccess means that the resolver has no access yet.
	ReasonNoAccess = connection.ReasonNoAccess
	// ReasonClusterNotFound means that the resolver knows no such cluster.
	ReasonClusterNotFound = connection.ReasonClusterNotFound
	// ReasonBadAccess means that the description of the access cannot be
	// parsed.
	ReasonBadAccess = connection.ReasonBadAccess
	// ReasonRefused means that policy refuses the description of the access, or
	// the address that it leads to.
	ReasonRefused = connection.ReasonRefused
	// ReasonReleased means that nothing watches the cluster or keeps it engaged
	// any more. The cluster itself may be healthy.
	ReasonReleased = connection.ReasonReleased
	// ReasonUnhealthy means that the API server answers that checks of its own
	// health fail, and names them. What works there goes on.
	ReasonUnhealthy = connection.ReasonUnhealthy
)

// phases are all phases, in order.
var phases = []Phase{
	PhasePending, PhaseConnecting, PhaseReady, PhaseDegraded, PhaseDisconnected, PhaseRefused, PhaseGone,
}

// Phases returns all phases, in the order in which a cluster passes through
// them.
func Phases() []Phase { return slices.Clone(phases) }

// reasons explain each reason in one sentence. docs/runbook.md begins its
// sections with the same sentences.
var reasons = map[string]string{
	ReasonNoAccess:        "Nothing describes yet how the cluster is reached, or it is not ready to be.",
	ReasonClusterNotFound: "No object in the hub describes this cluster.",
	ReasonBadAccess:       "What describes the access is there and cannot be understood.",
	ReasonRefused:         "Our own policy forbids what the access, its address or the server asks for.",
	ReasonReleased:        "Nothing needs the cluster any more, so that its connection was ended.",
	ReasonUnhealthy:       "Checks of the API server's own health fail.",

	"NotServed":    "The cluster does not serve the kind.",
	"NotWatchable": "The kind can be read and not watched.",
	"OverBudget":   "The objects exceed a limit of the operator.",

	string(transport.Unauthorized): "The API server rejects our credentials.",
	string(transport.Forbidden):    "The API server knows us and does not allow this.",
	string(transport.NotFound):     "What was asked does not exist at this address.",
	string(transport.Throttled):    "The API server asks us to slow down.",
	string(transport.TLS):          "The TLS handshake failed.",
	string(transport.TLSUnknownAuthority): "The server's certificate is signed by an authority " +
		"that the access does not trust.",
	string(transport.TLSBadName):     "The server's certificate is for another name.",
	string(transport.TLSExpired):     "The server's certificate has expired, or our clock is ahead.",
	string(transport.TLSNotYetValid): "The server's certificate is not valid yet, or our clock is behind.",
	string(transport.Unreachable):    "No connection can be made, or it broke.",
	string(transport.Timeout):        "The answer did not come in time.",
	string(transport.NotKubernetes):  "Something else than a Kubernetes API answers at this address.",
	string(transport.Server):         "The API server answers that it failed.",
	string(transport.BadConfig):      "The access is understood and cannot be used.",
	string(transport.Canceled):       "The attempt was called off.",
	string(transport.Cut):            "Our own side ended the request, as it got other access or was stopped.",
	string(transport.Unknown):        "The attempt failed in a way that fits no other reason.",
}

// Explain returns a sentence that explains the reason of a phase or of an error,
// and the empty string for another word.
func Explain(reason string) string { return reasons[reason] }
