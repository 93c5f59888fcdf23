// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import "github.com/fleetcache/fleetcache/internal/transport"

// phasesInOrder are all phases, in the order in which a cluster passes through
// them.
var phasesInOrder = []Phase{
	PhasePending, PhaseConnecting, PhaseReady, PhaseDegraded, PhaseDisconnected, PhaseRefused, PhaseGone,
}

// reasons explain each reason in one sentence. docs/runbook.md begins its
// sections with the same sentences.
var reasons = map[string]string{
	ReasonNoAccess:        "Nothing describes yet how the cluster is reached, or it is not ready to be.",
	ReasonClusterNotFound: "No object in the hub describes this cluster.",
	ReasonBadAccess:       "What describes the access is there and cannot be understood.",
	ReasonRefused:         "Our own policy forbids what the access, its address or the server asks for.",
	ReasonReleased:        "Nothing needs the cluster any more, so that its connection was ended.",

	string(transport.Unauthorized):        "The API server rejects our credentials.",
	string(transport.Forbidden):           "The API server knows us and does not allow this.",
	string(transport.NotFound):            "What was asked does not exist at this address.",
	string(transport.Throttled):           "The API server asks us to slow down.",
	string(transport.TLS):                 "The TLS handshake failed.",
	string(transport.TLSUnknownAuthority): "The server's certificate is signed by an authority that the access does not trust.",
	string(transport.TLSBadName):          "The server's certificate is for another name.",
	string(transport.TLSExpired):          "The server's certificate has expired, or our clock is ahead.",
	string(transport.TLSNotYetValid):      "The server's certificate is not valid yet, or our clock is behind.",
	string(transport.Unreachable):         "No connection can be made, or it broke.",
	string(transport.Timeout):             "The answer did not come in time.",
	string(transport.NotKubernetes):       "Something else than a Kubernetes API answers at this address.",
	string(transport.Server):              "The API server answers that it failed.",
	string(transport.BadConfig):           "The access is understood and cannot be used.",
	string(transport.Canceled):            "The attempt was called off.",
	string(transport.Cut):                 "Our own side ended the request, as it got other access or was stopped.",
	string(transport.Unknown):             "The attempt failed in a way that fits no other reason.",
}
