// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/identity"
	"github.com/fleetcache/fleetcache/internal/timetable"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// identityPath is the object whose UID is, by convention, the cluster's.
const identityPath = "/api/v1/namespaces/kube-system"

// discoveryPath is queried where everything else is forbidden: the default
// rules let every authenticated client read it.
const discoveryPath = "/api"

// identityWatch is the same query as a watch, which begins with the object in
// any state that the server has in memory.
const identityWatch = "/api/v1/namespaces?fieldSelector=metadata.name%3Dkube-system" +
	"&resourceVersion=0&timeoutSeconds=1&watch=true"

// identityInMemory is the same query, answered from what the server has in
// memory.
const identityInMemory = identityPath + "?resourceVersion=0"

// identityPatience is how long such a watch may take to begin, and how long the
// storage of a server that is not well may take to answer.
const identityPatience = 2 * time.Second

// identityPause is the time between two identity queries, while a cluster that
// answered them before does not.
const identityPause = 500 * time.Millisecond

// presumedPrefix marks an identity that was derived, not read.
const presumedPrefix = "presumed-"

var (
	errNoUID       = fmt.Errorf("no uid in the answer: %w", transport.ErrNotKubernetes)
	errNoDiscovery = fmt.Errorf("no discovery in the answer: %w", transport.ErrNotKubernetes)
)

// getter sends one GET and returns what the answer proves.
type getter func(ctx context.Context, path string) (transport.Proof, error)

// queries are what a server is asked to find out what it is: its identity,
// discovery and version here, and its health (health.go). Each takes no longer
// than a probe may.
type queries struct {
	cluster string        // its name
	timeout time.Duration // Config.ProbeTimeout
	signs   *signs
	// replaced is called when a server shows a certificate that none has shown
	// before.
	replaced func()
}

// identify returns the cluster's UID. With credentials that may not read it,
// the identity is derived from the address and the trusted certificates: a
// cluster that moves then counts as another one, which costs a list, and one
// that is replaced in place is not detected by its UID. known is the previous
// identity: an API server that has just started forbids everything until it has
// read its RBAC rules, and an identity derived from that would make the same
// cluster another one.
func (q *queries) identify(ctx context.Context, ask getter, access resolver.Access, known string) (string, error) {
	uid, err := q.kubeSystemUID(ctx, ask)
	if known != "" && !presumed(known) {
		patience, cancel := context.WithTimeout(ctx, q.timeout)
		defer cancel()
		for withheld(err) && timetable.Sleep(patience, identityPause) {
			uid, err = q.kubeSystemUID(ctx, ask)
		}
	}

	if !withheld(err) {
		return uid, err
	}
	config := access.Config()
	sum := sha256.Sum256([]byte(config.Host + "\x00" + config.APIPath + "\x00" + string(config.CAData)))

	return presumedPrefix + hex.EncodeToString(sum[:8]), nil
}

// presumed reports whether an identity was derived, because the right to query
// it is missing. No request waits for a proof of it. Instead, discovery is
// queried as often as the identity would be, to see that there is an API server
// at all.
func presumed(uid string) bool { return strings.HasPrefix(uid, presumedPrefix) }

// ProvenUID returns the UID that a cluster has proved in an epoch, or "" if its
// identity was only derived from the way to it.
func ProvenUID(epoch identity.Epoch) string {
	uid, _, _ := strings.Cut(string(epoch), "/")
	if presumed(uid) {
		return ""
	}
	return uid
}

// withheld reports whether the server refuses to identify itself.
func withheld(err error) bool {
	class := transport.Classify(err)
	return class == transport.Forbidden || class == transport.NotFound
}

// jittered returns d, up to a half shorter.
func jittered(d time.Duration) time.Duration { return d - rand.N(d/2) }

// kubeSystemUID queries the identity, and repeats that after a moment while the
// server is too busy to answer, for as long as a probe may take.
func (q *queries) kubeSystemUID(ctx context.Context, ask getter) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	var busy error
	for {
		uid, err := q.uid(ctx, ask)
		if busy != nil && ctx.Err() != nil {
			return "", busy // the server was busy, and the error now is only our own time-out
		}
		if transport.Classify(err) != transport.Throttled || !timetable.Sleep(ctx, jittered(time.Second)) {
			return uid, err
		}
		busy = err
	}
}

// uid queries the identity once. A server with too many requests counts
// watches separately, so a watch may still be answered. One whose storage does
// not answer has its identity in memory, from where it serves watches, too.
func (q *queries) uid(ctx context.Context, ask getter) (string, error) {
	stored, cancel, sick := ctx, func() {}, q.signs.unhealthy.Load()
	if sick {
		stored, cancel = context.WithTimeout(ctx, min(identityPatience, q.timeout/2))
	}
	uid, err := q.readUID(stored, ask, identityPath)
	cancel()
	note(&q.signs.busy.proof, err)
	class := transport.Classify(err)
	sick = sick && (class == transport.Server || class == transport.Timeout)
	if sick {
		if uid, err := q.readUID(ctx, ask, identityInMemory); err == nil {
			return uid, nil
		}
	}
	if sick || class == transport.Throttled {
		if uid := q.watchUID(ctx, ask); uid != "" {
			return uid, nil
		}
	}

	return uid, err
}

// readUID queries the identity by a GET.
func (q *queries) readUID(ctx context.Context, ask getter, path string) (string, error) {
	proof, err := ask(ctx, path)
	if q.signs.certificates.add(proof.Certificate) {
		q.replaced()
	}
	if err != nil {
		return "", err
	}
	var namespace identityObject
	if json.Unmarshal(proof.Body, &namespace) != nil || !namespace.usable() {
		return "", q.nonsense(identityPath, errNoUID)
	}
	return namespace.Metadata.UID, nil
}

// identityObject holds the fields that are read of the namespace kube-system.
type identityObject struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"metadata"`
}

// usable reports whether there is a uid, and no field shows that it belongs to
// another object: a gateway may answer everything with one document.
func (o *identityObject) usable() bool {
	return o.Metadata.UID != "" && len(o.Metadata.UID) <= 64 &&
		(o.Kind == "" || o.Kind == "Namespace") &&
		(o.Metadata.Name == "" || o.Metadata.Name == metav1.NamespaceSystem)
}

// nonsense returns the error for an answer that no API server gives.
func (q *queries) nonsense(path string, err error) error {
	return &transport.Error{
		Cluster: q.cluster,
		Op:      "GET " + path,
		Class:   transport.NotKubernetes,
		Err:     err,
	}
}

// discovers returns nil if the server answers the root of discovery.
func (q *queries) discovers(ctx context.Context, ask getter) error {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	proof, err := ask(ctx, discoveryPath)
	note(&q.signs.busy.proof, err)
	if err != nil {
		return err
	}
	var document metav1.TypeMeta
	if json.Unmarshal(proof.Body, &document) != nil ||
		document.Kind != "APIVersions" && document.Kind != "APIGroupDiscoveryList" {
		return q.nonsense(discoveryPath, errNoDiscovery)
	}
	return nil
}

// watchUID queries the identity by a watch, and returns "" if that fails.
func (q *queries) watchUID(ctx context.Context, ask getter) string {
	ctx, cancel := context.WithTimeout(ctx, identityPatience)
	defer cancel()
	proof, err := ask(ctx, identityWatch)
	var event struct {
		Type   string         `json:"type"`
		Object identityObject `json:"object"`
	}
	if err != nil || json.Unmarshal(proof.Body, &event) != nil || event.Type != "ADDED" ||
		event.Object.Metadata.Name != metav1.NamespaceSystem || !event.Object.usable() {
		return ""
	}

	return event.Object.Metadata.UID
}

// versionText matches a valid gitVersion: it is shown to people, and comes from
// an untrusted server.
var versionText = regexp.MustCompile(`^v[0-9]+\.[0-9]+[0-9A-Za-z.+_-]{0,64}$`)

// version returns the API server's gitVersion, or "" if the server does not
// report one: nothing depends on it.
func (q *queries) version(ctx context.Context, ask getter) string {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	proof, err := ask(ctx, fallbackPath)
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err != nil || json.Unmarshal(proof.Body, &version) != nil || !versionText.MatchString(version.GitVersion) {
		return ""
	}
	return version.GitVersion
}
