// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// userAgent marks our own requests, which are not counted.
	userAgent = "fleetcache-testenv"
	// askTimeout bounds one request for a server's readiness.
	askTimeout = 10 * time.Second
	// signalTimeout bounds how long a process may take to be suspended.
	signalTimeout = 10 * time.Second
)

// ready waits until the server reports that it is ready, and until the
// namespaces exist that an API server creates on its own.
func (a *APIServer) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client := a.ownClient()
	for _, path := range []string{"/readyz", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/default"} {
		if err := answers(ctx, 5*pollEvery, client, "https://"+a.Addr()+path); err != nil {
			return err
		}
	}

	return nil
}

// poll waits until done returns true or an error, or until ctx ends, whose cause
// it then returns. It calls done at once and after each interval.
func poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	look := time.NewTicker(every)
	defer look.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ownClient returns a client for our own requests. It trusts any certificate,
// because the server's may be expired on purpose, and keeps no connections.
func (a *APIServer) ownClient() *http.Client {
	return &http.Client{
		Timeout: askTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{
				Certificates:       []tls.Certificate{a.cluster.admin.TLS()},
				InsecureSkipVerify: true,
			},
		},
	}
}

// answers waits until a server answers a request with 200.
func answers(ctx context.Context, every time.Duration, client *http.Client, url string) error {
	var last error
	err := poll(ctx, every, func() (bool, error) {
		last = ask(ctx, client, url)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}

// ask sends a request and returns nil if the response is 200.
func ask(ctx context.Context, client *http.Client, url string) error {
	resp, err := send(ctx, client, url, "")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return nil
}

// send sends a request, with a token unless that is empty.
func send(ctx context.Context, client *http.Client, url, token string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return client.Do(req)
}
