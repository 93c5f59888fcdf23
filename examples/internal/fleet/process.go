// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// process is a control plane of processes: an etcd and a kube-apiserver.
type process struct{ *testenv.Cluster }

// AddUser implements Cluster.
func (p process) AddUser(ctx context.Context, name string, rules ...rbacv1.PolicyRule) (User, error) {
	user, err := p.Cluster.AddUser(ctx, name, rules...)
	if err != nil {
		return nil, err
	}
	return user, nil
}

// OpenWatches implements Cluster. It reads the metrics of the API server.
func (p process) OpenWatches(ctx context.Context, resource string) (n int, err error) {
	config := p.Config()
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	defer web.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := web.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("metrics of %s: %s", p.Name(), response.Status)
	}
	return countWatches(response.Body, resource)
}

// countWatches reads how many watches of a resource are open from the metrics of
// an API server.
func countWatches(metrics io.Reader, resource string) (n int, err error) {
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), "} ")
		if !strings.HasPrefix(series, "apiserver_longrunning_requests{") ||
			!strings.Contains(series, `resource="`+resource+`"`) || !strings.Contains(series, `verb="WATCH"`) {
			continue
		}
		count, err := strconv.Atoi(value)
		if err != nil {
			return 0, err
		}
		n += count
	}
	return n, lines.Err()
}
