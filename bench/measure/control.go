// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Cluster is the access to one cluster.
type Cluster struct {
	Name string
	Host string
	// CA is in PEM.
	CA []byte
	// Token is a bearer token; without one, Cert and Key are the credentials.
	Token     string
	Cert, Key []byte
}

// Kind is a kind of objects to watch.
type Kind struct {
	Group, Version, Kind, Resource string
}

// Mark is a state of an object that a cache should have.
type Mark struct {
	Cluster         int // an index
	Kind            Kind
	Namespace, Name string
	ResourceVersion string
}

// Counts are what the servers of a fleet have counted so far. Requests that are
// answered and those that are open both count.
type Counts struct {
	// Live is the number of watches that are open now, without those of
	// History.
	Live int
	// Connections is the number of connections that are open now.
	Connections int
	// Opened is the number of TLS connections made, and Resumed how many of
	// them resumed a session.
	Opened, Resumed int
	// Lists are LISTs and pages of LISTs, Streams watches that begin with a
	// streamed list, Watches all others.
	Lists, Streams, Watches int
	// History are requests that select no object, and so only ask for the
	// version of the history.
	History int
	// KubeSystem are GETs of the namespace kube-system, and Others all other
	// requests: discovery, probes.
	KubeSystem, Others int
	// Objects is the number of objects that were sent, in lists and in events.
	Objects int
	// Sent is the number of bytes that were sent, encrypted.
	Sent int
}

// Requests returns the number of requests.
func (c Counts) Requests() int {
	return c.Lists + c.Streams + c.Watches + c.History + c.KubeSystem + c.Others
}

// Control controls the servers of a fleet.
type Control struct {
	// URL is where the servers are controlled.
	URL string
}

// Paths at which servers are controlled.
const (
	PathClusters = "/clusters"
	PathCounts   = "/counts"
	PathMarks    = "/marks"
	PathDown     = "/down"
	PathUp       = "/up"
	PathRestart  = "/restart"
	PathForget   = "/forget"
	PathChange   = "/change"
	PathChurn    = "/churn"
)

func (c Control) call(ctx context.Context, path string, result any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("control %s: %s: %s", path, resp.Status, body)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(body, result)
}

// Clusters returns the clusters of the fleet.
func (c Control) Clusters(ctx context.Context) (all []Cluster, err error) {
	return all, c.call(ctx, PathClusters, &all)
}

// Counts returns what the servers have counted so far.
func (c Control) Counts(ctx context.Context) (n Counts, err error) {
	return n, c.call(ctx, PathCounts, &n)
}

// Marks returns the present state of some objects of all clusters.
func (c Control) Marks(ctx context.Context) (marks []Mark, err error) {
	return marks, c.call(ctx, PathMarks, &marks)
}

// Down ends all connections and refuses new ones.
func (c Control) Down(ctx context.Context) error { return c.call(ctx, PathDown, nil) }

// Up admits connections again. TLS sessions can be resumed.
func (c Control) Up(ctx context.Context) error { return c.call(ctx, PathUp, nil) }

// Restart ends all connections and admits new ones, at which no TLS session can
// be resumed.
func (c Control) Restart(ctx context.Context) error { return c.call(ctx, PathRestart, nil) }

// Forget removes the history, as compactions do in the long run: no watch can
// resume where it was.
func (c Control) Forget(ctx context.Context) error { return c.call(ctx, PathForget, nil) }

// Change changes one object of each cluster and returns the new states.
func (c Control) Change(ctx context.Context) (marks []Mark, err error) {
	return marks, c.call(ctx, PathChange, &marks)
}

// Churn changes objects of each cluster all the time, so many per second, until
// it is called with 0.
func (c Control) Churn(ctx context.Context, perSecond float64) error {
	return c.call(ctx, fmt.Sprintf("%s?rate=%g", PathChurn, perSecond), nil)
}
