// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/fleetcache/fleetcache/internal/testenv/assets"
)

// ServerOption changes the version or the arguments of an API server.
type ServerOption func(*serverOptions)

type serverOptions struct {
	kubernetes string
	args       [][2]string
}

// settings are what distinguishes an API server from others of its cluster.
// They change only while the server is not running, and only by the holder of
// the turn.
type settings struct {
	program string // path of kube-apiserver
	args    [][2]string
}

// Version sets the version of Kubernetes of an API server, given as 1.34.4 or
// as 1.34.
func Version(kubernetes string) ServerOption {
	return func(o *serverOptions) { o.kubernetes = kubernetes }
}

// Args sets arguments of the form --flag=value for an API server, replacing
// those of the cluster. It panics if an argument has another form.
func Args(args ...string) ServerOption {
	parsed := parseArgs(args)
	return func(o *serverOptions) { o.args = append(o.args, parsed...) }
}

// settings returns the settings that options specify for an API server of the
// cluster.
func (c *Cluster) settings(ctx context.Context, opts []ServerOption) (settings, error) {
	var o serverOptions
	for _, opt := range opts {
		opt(&o)
	}
	as := settings{program: c.binaries.APIServer, args: o.args}
	if o.kubernetes == "" {
		return as, nil
	}
	found, err := assets.FindVersion(ctx, o.kubernetes, c.options.log)
	as.program = found.APIServer

	return as, err
}

// RestartAs ends the process gracefully and starts it on the same port, with
// the same data and certificates, but with the version and arguments that the
// options specify. Without Version it has the cluster's version, and without
// Args the cluster's arguments; the options of an earlier RestartAs no longer
// apply.
func (a *APIServer) RestartAs(ctx context.Context, opts ...ServerOption) error {
	ctx, done, err := a.cluster.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	as, err := a.cluster.settings(ctx, opts)
	if err != nil {
		return err
	}
	if err := a.proc.terminate(ctx); err != nil {
		return err
	}
	if err := a.proc.become(as.program); err != nil {
		return err
	}
	a.as = as
	a.configure()

	return a.run(ctx)
}

// StreamsLists reports whether the server streams lists, which depends on its
// version and feature gates.
func (a *APIServer) StreamsLists(ctx context.Context) (bool, error) {
	query := url.Values{
		"watch":                {"true"},
		"sendInitialEvents":    {"true"},
		"resourceVersionMatch": {"NotOlderThan"},
		"allowWatchBookmarks":  {"true"},
		"timeoutSeconds":       {"1"},
	}
	resp, err := send(ctx, a.ownClient(), "https://"+a.Addr()+"/api/v1/nodes?"+query.Encode(), "")
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()

	switch resp.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusUnprocessableEntity:
		return false, nil
	default:
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return false, fmt.Errorf("ask %s whether it streams lists: %s: %s", a.Addr(), resp.Status, body)
	}
}
