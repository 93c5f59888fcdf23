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
	look := time.NewTicker(5 * pollEvery)
	defer look.Stop()

	for _, path := range []string{"/readyz", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/default"} {
		for {
			err := ask(ctx, client, "https://"+a.Addr()+path)
			if err == nil {
				break
			}
			select {
			case <-look.C:
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
		}
	}

	return nil
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

// ask sends a request and returns nil if the response is 200.
func ask(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", userAgent)
	resp, err := client.Do(req)
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
