// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetcache/fleetcache/internal/certs"
)

// startAll starts etcd and all API servers and waits until they are ready. The
// caller has a turn.
func (c *Cluster) startAll(ctx context.Context) error {
	if err := c.etcd.begin(ctx); err != nil {
		return fmt.Errorf("cluster %s: %w", c.name, err)
	}
	for _, a := range c.servers() {
		if err := a.run(ctx); err != nil {
			return fmt.Errorf("cluster %s: %w", c.name, err)
		}
	}
	return nil
}

// killAll ends all processes at once. The caller has a turn.
func (c *Cluster) killAll() error {
	var errs []error
	for _, a := range c.servers() {
		errs = append(errs, a.proc.kill())
	}
	return errors.Join(append(errs, c.etcd.kill())...)
}

// RestartWithNewCA restarts all API servers of the cluster with certificates of
// a new authority, on the same ports. Clients that trust only the old authority
// can no longer connect; credentials stay valid. From then on Config,
// Kubeconfig and Client use the new authority.
func (c *Cluster) RestartWithNewCA(ctx context.Context) error {
	return c.recertify(ctx, newAuthority("serving"), time.Now().Add(-validity), time.Now().Add(validity))
}

// RestartWithCertificate restarts all API servers of the cluster with new
// certificates of the same authority. They are valid from notBefore to
// notAfter, which may both be in the past or in the future.
func (c *Cluster) RestartWithCertificate(ctx context.Context, notBefore, notAfter time.Time) error {
	return c.recertify(ctx, c.authority(), notBefore, notAfter)
}

func (c *Cluster) recertify(ctx context.Context, by certs.Pair, notBefore, notAfter time.Time) error {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	c.mu.Lock()
	c.mu.serving = by
	c.mu.Unlock()

	for _, a := range c.servers() {
		if err := a.proc.terminate(ctx); err != nil {
			return err
		}
		if err := a.certify(by, notBefore, notAfter); err != nil {
			return err
		}
		if err := a.run(ctx); err != nil {
			return err
		}
	}

	return c.renewClient()
}

// Wipe replaces the cluster with a new, empty one that has the same URL and
// certificates but another kube-system UID, resource versions that start over,
// and no RBAC of any user. [User.Grant] grants a user its rights again.
func (c *Cluster) Wipe(ctx context.Context) error { return c.replaceData(ctx, "") }

// Snapshot is a copy of everything that a cluster stored at one moment. It
// exists as long as the cluster.
type Snapshot struct {
	cluster *Cluster
	dir     string
}

// Snapshot copies the stored data. It takes a fraction of a second, during
// which etcd is paused. No client is disconnected.
func (c *Cluster) Snapshot(ctx context.Context) (*Snapshot, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c.mu.Lock()
	c.mu.snapshots++
	s := &Snapshot{cluster: c, dir: fmt.Sprintf("%s/snapshot-%d", c.dir, c.mu.snapshots)}
	c.mu.Unlock()

	if err := c.etcd.copyData(ctx, s.dir); err != nil {
		return nil, fmt.Errorf("take a snapshot of cluster %s: %w", c.name, err)
	}
	return s, nil
}

// Rollback restores an earlier state of the cluster, as an operator does who
// restores a backup of etcd: all processes end, and start again with the old
// data. Resource versions go back and later writes are lost, while identity and
// certificates stay. A snapshot can be restored many times.
func (c *Cluster) Rollback(ctx context.Context, s *Snapshot) error {
	if s.cluster != c {
		return fmt.Errorf("roll back cluster %s: the snapshot is of cluster %s", c.name, s.cluster.name)
	}
	return c.replaceData(ctx, s.dir)
}

func (c *Cluster) replaceData(ctx context.Context, from string) error {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := c.killAll(); err != nil {
		return err
	}
	if err := c.etcd.replaceData(from); err != nil {
		return err
	}
	return c.startAll(ctx)
}

// PauseEtcd suspends etcd with SIGSTOP. The API server keeps running and
// answers requests that need no storage.
func (c *Cluster) PauseEtcd() error {
	ctx, cancel := context.WithTimeout(context.Background(), signalTimeout)
	defer cancel()
	return c.etcd.pause(ctx)
}

// ResumeEtcd continues a paused etcd.
func (c *Cluster) ResumeEtcd() error { return c.etcd.resume() }

// KillEtcd ends etcd at once, with SIGKILL. The API server keeps running and
// answers requests that need no storage. StartEtcd starts etcd again.
func (c *Cluster) KillEtcd() error {
	_, done, err := c.begin(context.Background())
	if err != nil {
		return err
	}
	defer done()
	return c.etcd.kill()
}

// StartEtcd starts etcd again after KillEtcd, with the same data and port. It
// does nothing if etcd is running.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return c.etcd.begin(ctx)
}

// AddReplica starts another API server for the cluster, with a port of its own
// and the same etcd. It has the version of the first one unless an option
// specifies another.
func (c *Cluster) AddReplica(ctx context.Context, opts ...ServerOption) (*APIServer, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	as, err := c.settings(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	name := fmt.Sprintf("replica-%d", len(c.mu.replicas)+1)
	c.mu.Unlock()

	a, err := newAPIServer(c, name, as)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.mu.replicas = append(c.mu.replicas, a) // from here on Stop will close it
	c.mu.Unlock()

	if err := a.run(ctx); err != nil {
		return nil, errors.Join(err, a.proc.kill())
	}
	return a, nil
}
