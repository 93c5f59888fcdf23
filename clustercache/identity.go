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
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/seam"
)

// identityPath names the object whose UID is, by convention, the cluster's.
const identityPath = "/api/v1/namespaces/kube-system"

// identityPause is the time between two questions who answers, while a cluster that said it before does not.
const identityPause = 500 * time.Millisecond

// presumedPrefix marks an identity that was not asked for but concluded.
const presumedPrefix = "presumed-"

var (
	// errOtherCluster indicates that another cluster answers at the address than before.
	errOtherCluster = errors.New("another cluster answers")
	// errUnsteady indicates that connections were made faster than who answers could be asked.
	errUnsteady = errors.New("connections do not last")
	errNoUID    = fmt.Errorf("no uid in the answer: %w", seam.ErrNotKubernetes)
)

// identify returns the cluster's UID. Credentials that may not read it get an identity of the address and the trusted
// certificates: a cluster that moves then counts as another one, which costs a list, and one that is replaced in place is not
// noticed by its UID. known is who answered before: an API server that has just started forbids everything until it has read
// its rules, and to conclude something from that would make the same cluster another one.
func (c *cluster) identify(ctx context.Context, ask asker, access Access, known string) (string, error) {
	uid, err := c.kubeSystemUID(ctx, ask)
	if known != "" && !strings.HasPrefix(known, presumedPrefix) {
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

// withheld tells whether the server does not say who it is.
func withheld(err error) bool {
	class := seam.Classify(err)
	return class == seam.Forbidden || class == seam.NotFound
}

// jittered returns d, up to a half shorter.
func jittered(d time.Duration) time.Duration { return d - rand.N(d/2) }

// pause waits, and tells whether ctx has not ended.
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

func (c *cluster) kubeSystemUID(ctx context.Context, ask asker) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cc.options.ProbeTimeout)
	defer cancel()
	proof, err := ask(ctx, identityPath)
	if err != nil {
		return "", err
	}
	var namespace struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if json.Unmarshal(proof.Body, &namespace) != nil || namespace.Metadata.UID == "" || len(namespace.Metadata.UID) > 64 {
		return "", &seam.Error{Cluster: c.name, Op: "GET " + identityPath, Class: seam.NotKubernetes, Err: errNoUID}
	}
	return namespace.Metadata.UID, nil
}

// versionText is what a gitVersion may look like: it is shown to people, and comes from outside.
var versionText = regexp.MustCompile(`^v[0-9]+\.[0-9]+[0-9A-Za-z.+_-]{0,64}$`)

// serverVersion returns the API server's gitVersion. Nothing depends on it, so that a server which does not tell has none.
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

// guard is the round tripper of lists and watches. It hands out an answer only if who gave it is known to be the
// cluster of the epoch that was asked.
type guard struct {
	c     *cluster
	next  http.RoundTripper
	epoch informerpool.Epoch
	uid   string
}

func newGuarded(c *cluster, epoch informerpool.Epoch, uid string) *http.Client {
	inner := c.seam.StreamClient()
	return &http.Client{
		Transport:     &guard{c: c, next: inner.Transport, epoch: epoch, uid: uid},
		CheckRedirect: inner.CheckRedirect,
	}
}

// verifyTries is how often who answers is asked because a connection was made meanwhile, and verifyPause the wait before the
// second time, which doubles: over HTTP/1.1 every watch has a connection of its own, and many begin at once.
const (
	verifyTries = 9
	verifyPause = 10 * time.Millisecond
)

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasPrefix(g.uid, presumedPrefix) {
		return g.next.RoundTrip(req)
	}
	if err := g.verify(req.Context()); err != nil {
		return nil, err
	}
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	// The answer may have come over a connection that was made for it. Nobody has read of it yet.
	if err := g.verify(req.Context()); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// verify asks who answers, if a connection was made since that was last known.
func (g *guard) verify(ctx context.Context) error {
	c := g.c
	for try := range verifyTries {
		if try > 0 && !pause(ctx, jittered(verifyPause<<(try-1))) {
			return context.Cause(ctx)
		}
		if v := c.view.Load(); v.epoch != g.epoch {
			return informerpool.ErrEpochChanged
		}
		seen := c.connections.Load()
		if c.verified.Load() == seen {
			return nil
		}
		uid, err := c.kubeSystemUID(ctx, c.seam.Probe)
		if withheld(err) {
			// The right to ask was taken away. The refresh concludes an identity instead; without it, nobody would ever
			// get past here.
			c.post(message{Event: phase.Event{Kind: phase.Doubted}})
		}
		if err != nil {
			return err
		}
		if uid != g.uid {
			// The refresh finds the same and starts the new epoch. Until then the epoch asked for is not to be had.
			c.post(message{Event: phase.Event{Kind: phase.Doubted}})
			return errOtherCluster
		}
		if c.connections.Load() == seen {
			c.verified.Store(seen)
			return nil
		}
	}
	return &seam.Error{Cluster: c.name, Op: "GET " + identityPath, Class: seam.Unreachable, Err: errUnsteady}
}

// endpoint is where the informers of a cluster send their requests. It blocks while the cluster is not connected.
func (cc *ClusterCache) endpoint(ctx context.Context, key client.ObjectKey) (informerpool.Endpoint, error) {
	for {
		c := cc.find(key)
		if c == nil {
			return informerpool.Endpoint{}, ErrUnknownCluster
		}
		v := c.view.Load()
		if v.connected {
			return informerpool.Endpoint{Client: v.client, URL: c.seam.URL(), Epoch: v.epoch}, nil
		}
		select {
		case <-v.up:
		case <-c.done: // there may be another cluster of this key
		case <-ctx.Done():
			return informerpool.Endpoint{}, context.Cause(ctx)
		}
	}
}
