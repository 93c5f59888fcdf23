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

// identify returns the cluster's UID. With credentials that may not read it,
// the identity is derived from the address and the trusted certificates: a
// cluster that moves then counts as another one, which costs a list, and one
// that is replaced in place is not detected by its UID. known is the previous
// identity: an API server that has just started forbids everything until it has
// read its RBAC rules, and an identity derived from that would make the same
// cluster another one.
func (c *Connection) identify(ctx context.Context, ask getter, access resolver.Access, known string) (string, error) {
	uid, err := c.kubeSystemUID(ctx, ask)
	if known != "" && !presumed(known) {
		patience, cancel := context.WithTimeout(ctx, c.cfg.ProbeTimeout)
		defer cancel()
		for withheld(err) && timetable.Sleep(patience, identityPause) {
			uid, err = c.kubeSystemUID(ctx, ask)
		}
	}

	if !withheld(err) {
		return uid, err
	}
	config := access.Config()
	sum := sha256.Sum256([]byte(config.Host + "\x00" + config.APIPath + "\x00" + string(config.CAData)))

	return presumedPrefix + hex.EncodeToString(sum[:8]), nil
}

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
func (c *Connection) kubeSystemUID(ctx context.Context, ask getter) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ProbeTimeout)
	defer cancel()
	var busy error
	for {
		uid, err := c.askUID(ctx, ask)
		if busy != nil && ctx.Err() != nil {
			return "", busy // the server was busy, and the error now is only our own time-out
		}
		if transport.Classify(err) != transport.Throttled || !timetable.Sleep(ctx, jittered(time.Second)) {
			return uid, err
		}
		busy = err
	}
}

// askUID queries the identity once. A server with too many requests counts
// watches separately, so a watch may still be answered. One whose storage does
// not answer has its identity in memory, from where it serves watches, too.
func (c *Connection) askUID(ctx context.Context, ask getter) (string, error) {
	stored, cancel, sick := ctx, func() {}, c.signs.unhealthy.Load()
	if sick {
		stored, cancel = context.WithTimeout(ctx, min(identityPatience, c.cfg.ProbeTimeout/2))
	}
	uid, err := c.readUID(stored, ask, identityPath)
	cancel()
	c.signs.busy.noteProof(err)
	class := transport.Classify(err)
	sick = sick && (class == transport.Server || class == transport.Timeout)
	if sick {
		if uid, err := c.readUID(ctx, ask, identityInMemory); err == nil {
			return uid, nil
		}
	}
	if sick || class == transport.Throttled {
		if uid := c.watchUID(ctx, ask); uid != "" {
			return uid, nil
		}
	}

	return uid, err
}

// readUID queries the identity by a GET.
func (c *Connection) readUID(ctx context.Context, ask getter, path string) (string, error) {
	proof, err := ask(ctx, path)
	if c.signs.certificates.add(proof.Certificate) {
		c.hooks.Replaced()
	}
	if err != nil {
		return "", err
	}
	var namespace identityObject
	if json.Unmarshal(proof.Body, &namespace) != nil || !namespace.usable() {
		return "", c.nonsense(identityPath, errNoUID)
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
func (c *Connection) nonsense(path string, err error) error {
	return &transport.Error{
		Cluster: c.name,
		Op:      "GET " + path,
		Class:   transport.NotKubernetes,
		Err:     err,
	}
}

// discovers returns nil if the server answers the root of discovery.
func (c *Connection) discovers(ctx context.Context, ask getter) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ProbeTimeout)
	defer cancel()
	proof, err := ask(ctx, discoveryPath)
	c.signs.busy.noteProof(err)
	if err != nil {
		return err
	}
	var document metav1.TypeMeta
	if json.Unmarshal(proof.Body, &document) != nil ||
		document.Kind != "APIVersions" && document.Kind != "APIGroupDiscoveryList" {
		return c.nonsense(discoveryPath, errNoDiscovery)
	}
	return nil
}

// watchUID queries the identity by a watch, and returns "" if that fails.
func (c *Connection) watchUID(ctx context.Context, ask getter) string {
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

// serverVersion returns the API server's gitVersion, or "" if the server does
// not report one: nothing depends on it.
func (c *Connection) serverVersion(ctx context.Context, ask getter) string {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ProbeTimeout)
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
