// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// identityPath is the object whose UID is, by convention, the cluster's.
const identityPath = "/api/v1/namespaces/kube-system"

// identityWatch is the same query as a watch, which begins with the object in
// any state that the server has in memory.
const identityWatch = "/api/v1/namespaces?fieldSelector=metadata.name%3Dkube-system&resourceVersion=0&timeoutSeconds=1&watch=true"

// identityPatience is how long such a watch may take to begin.
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
func (c *cluster) identify(ctx context.Context, ask asker, access Access, known string) (string, error) {
	uid, err := c.kubeSystemUID(ctx, ask)
	if known != "" && !presumed(known) {
		patience, cancel := context.WithTimeout(ctx, c.cc.options.ProbeTimeout)
		defer cancel()
		for withheld(err) && pause(patience, identityPause) {
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

// withheld reports whether the server refuses to identify itself.
func withheld(err error) bool {
	class := transport.Classify(err)
	return class == transport.Forbidden || class == transport.NotFound
}

// jittered returns d, up to a half shorter.
func jittered(d time.Duration) time.Duration { return d - rand.N(d/2) }

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// kubeSystemUID queries the identity, and repeats that after a moment while the
// server is too busy to answer, for as long as a probe may take.
func (c *cluster) kubeSystemUID(ctx context.Context, ask asker) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cc.options.ProbeTimeout)
	defer cancel()
	var busy error
	for {
		uid, err := c.askUID(ctx, ask)
		if busy != nil && ctx.Err() != nil {
			return "", busy // the server was busy, and the error now is only our own time-out
		}
		if transport.Classify(err) != transport.Throttled || !pause(ctx, jittered(time.Second)) {
			return uid, err
		}
		busy = err
	}
}

// askUID queries the identity once. A server with too many requests counts
// watches separately, so a watch may still be answered.
func (c *cluster) askUID(ctx context.Context, ask asker) (string, error) {
	proof, err := ask(ctx, identityPath)
	c.busy.noteProof(err)
	if c.shown.news(proof.Certificate) {
		c.cc.pool.AuditSoon(c.key)
	}
	if transport.Classify(err) == transport.Throttled {
		if uid := c.watchUID(ctx, ask); uid != "" {
			return uid, nil
		}
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
func (c *cluster) nonsense(path string, err error) error {
	return &transport.Error{
		Cluster: c.name,
		Op:      "GET " + path,
		Class:   transport.NotKubernetes,
		Err:     err,
	}
}

// discovers returns nil if the server answers the root of discovery.
func (c *cluster) discovers(ctx context.Context, ask asker) error {
	ctx, cancel := context.WithTimeout(ctx, c.cc.options.ProbeTimeout)
	defer cancel()
	proof, err := ask(ctx, discoveryPath)
	c.busy.noteProof(err)
	if err != nil {
		return err
	}
	var document metav1.TypeMeta
	if json.Unmarshal(proof.Body, &document) != nil || document.Kind != "APIVersions" && document.Kind != "APIGroupDiscoveryList" {
		return c.nonsense(discoveryPath, errNoDiscovery)
	}
	return nil
}

// watchUID queries the identity by a watch, and returns "" if that fails.
func (c *cluster) watchUID(ctx context.Context, ask asker) string {
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
func (c *cluster) serverVersion(ctx context.Context, ask asker) string {
	ctx, cancel := context.WithTimeout(ctx, c.cc.options.ProbeTimeout)
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

// guard is the round tripper of lists and watches. It sends a request, and
// returns its answer, only if the server is known to be the cluster of the
// epoch that the request is for.
type guard struct {
	c    *cluster
	next http.RoundTripper
	view *view
}

func newGuarded(c *cluster, v *view) *http.Client {
	inner := c.transport.StreamClient()
	return &http.Client{
		Transport:     &guard{c: c, next: inner.Transport, view: v},
		CheckRedirect: inner.CheckRedirect,
	}
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	want := claim{view: g.view, age: proofSoon, warm: true}
	if req.URL.Query().Has("continue") {
		want.age = proofAge // a page of a list that began with a proof
	}
	if err := g.c.prover.prove(req.Context(), want); err != nil {
		return nil, g.changed(err)
	}
	want.age = proofAge // by the time it is sent
	resp, err := g.next.RoundTrip(req.WithContext(transport.WithConnCheck(req.Context(), g.c.prover.over(want))))
	g.c.noteOutcome(resp, err)
	if errors.Is(err, errMoved) {
		return nil, g.changed(err)
	}
	if err != nil {
		return nil, err
	}
	if err := g.c.prover.still(req.Context(), g.view); err != nil {
		_ = resp.Body.Close()
		return nil, g.changed(err)
	}
	q := req.URL.Query()
	if q.Has("watch") {
		err = g.c.prover.confirm(req.Context(), g.view)
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, g.changed(err)
	}
	if q.Has("watch") && (q.Get("sendInitialEvents") == "" || q.Get("fieldSelector") == "") {
		resp.Body = newWatchBody(&g.c.prover, req, resp.Body)
	}

	return resp, nil
}

// changed returns informerpool.ErrEpochChanged if the epoch of the request has
// ended: the informer continues with the next one at once. Until that has
// begun, the informer retries after a while.
func (g *guard) changed(err error) error {
	if g.c.view.Load().epoch != g.view.epoch {
		return informerpool.ErrEpochChanged
	}
	return err
}

// liveGuard is the round tripper of live reads and writes. It sends no request
// to a cluster whose identity was not proven lately, or over a connection
// without a proof, and returns no answer from another history than the one
// requested.
type liveGuard struct {
	c    *cluster
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g *liveGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	v := g.c.view.Load()
	want := claim{view: v, age: proofAge}
	err := g.c.whyNot()
	if v.connected {
		err = g.c.prover.prove(req.Context(), want)
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // net/http's contract
		}
		return nil, err
	}

	resp, err := g.next.RoundTrip(req.WithContext(transport.WithConnCheck(req.Context(), g.c.prover.over(want))))
	if err != nil || req.Method != http.MethodGet {
		return resp, err
	}
	if err := g.c.prover.still(req.Context(), v); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}

	return resp, nil
}

// endpoint returns where the informers of a cluster send their requests. It
// blocks while the cluster is not connected.
func (cc *ClusterCache) endpoint(ctx context.Context, key client.ObjectKey) (informerpool.Endpoint, error) {
	for {
		c := cc.find(key)
		switch {
		case cc.ctx.Err() != nil: // a cluster closed by Stop would be found forever
			return informerpool.Endpoint{}, ErrClosed
		case c == nil:
			return informerpool.Endpoint{}, ErrUnknownCluster
		}

		v := c.view.Load()
		if v.connected {
			return informerpool.Endpoint{Client: v.client, URL: c.transport.URL(), Epoch: v.epoch}, nil
		}
		select {
		case <-v.up:
		case <-c.done: // there may be a new cluster with this key
		case <-ctx.Done():
			return informerpool.Endpoint{}, context.Cause(ctx)
		}
	}
}
