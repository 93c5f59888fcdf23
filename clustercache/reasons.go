// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import "github.com/fleetcache/fleetcache/internal/seam"

// phasesInOrder are all phases, in the order of a cluster's life.
var phasesInOrder = []Phase{
	PhasePending, PhaseConnecting, PhaseReady, PhaseDegraded, PhaseDisconnected, PhaseRefused, PhaseGone,
}

// reasons say in a sentence what each reason means. docs/runbook.md begins its
// sections with the same sentences.
var reasons = map[string]string{
	ReasonNoAccess:        "Nothing describes yet how the cluster is reached, or it is not ready to be.",
	ReasonClusterNotFound: "No object in the hub describes this cluster.",
	ReasonBadAccess:       "What describes the access is there and cannot be understood.",
	ReasonRefused:         "Our own policy forbids what the access, its address or the server asks for.",
	ReasonReleased:        "Nothing needs the cluster any more, so that its connection was ended.",

	string(seam.Unauthorized):        "The API server rejects our credentials.",
	string(seam.Forbidden):           "The API server knows us and does not allow this.",
	string(seam.NotFound):            "What was asked does not exist at this address.",
	string(seam.Throttled):           "The API server asks us to slow down.",
	string(seam.TLS):                 "The TLS handshake failed.",
	string(seam.TLSUnknownAuthority): "The server's certificate is signed by an authority that the access does not trust.",
	string(seam.TLSBadName):          "The server's certificate is for another name.",
	string(seam.TLSExpired):          "The server's certificate has expired, or our clock is ahead.",
	string(seam.TLSNotYetValid):      "The server's certificate is not valid yet, or our clock is behind.",
	string(seam.Unreachable):         "No connection can be made, or it broke.",
	string(seam.Timeout):             "The answer did not come in time.",
	string(seam.NotKubernetes):       "Something else than a Kubernetes API answers at this address.",
	string(seam.Server):              "The API server answers that it failed.",
	string(seam.BadConfig):           "The access is understood and cannot be used.",
	string(seam.Canceled):            "The attempt was called off.",
	string(seam.Cut):                 "Our own side ended the request, as it got other access or was stopped.",
	string(seam.Unknown):             "The attempt failed in a way that fits no other reason.",
}
