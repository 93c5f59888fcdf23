// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"time"
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
// a new authority, on the same ports. Whoever trusts only the old one cannot
// connect any more; credentials stay valid. Config, Kubeconfig and Client are
// those of the new authority from then on.
func (c *Cluster) RestartWithNewCA(ctx context.Context) error {
	by, err := newAuthority("serving")
	if err != nil {
		return err
	}
	return c.recertify(ctx, by, time.Now().Add(-validity), time.Now().Add(validity))
}

// RestartWithCertificate restarts all API servers of the cluster with new
// certificates of the same authority that are valid from notBefore to notAfter,
// which may both be in the past or in the future.
func (c *Cluster) RestartWithCertificate(ctx context.Context, notBefore, notAfter time.Time) error {
	return c.recertify(ctx, c.authority(), notBefore, notAfter)
}

func (c *Cluster) recertify(ctx context.Context, by *authority, notBefore, notAfter time.Time) error {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	c.mu.Lock()
	c.serving = by
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

// Wipe replaces the cluster by a new, empty one at the same URL with the same
// certificates: another kube-system UID, resource versions that start anew, and
// nobody's RBAC. [User.Grant] gives a user its rights again.
func (c *Cluster) Wipe(ctx context.Context) error { return c.replaceData(ctx, "") }

// Snapshot is a copy of everything a cluster stored at one moment. It lives as
// long as the cluster runs.
type Snapshot struct {
	cluster *Cluster
	dir     string
}

// Snapshot copies what is stored. It takes a fraction of a second, in which
// etcd is paused; nobody is disconnected.
func (c *Cluster) Snapshot(ctx context.Context) (*Snapshot, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c.mu.Lock()
	c.snapshots++
	s := &Snapshot{cluster: c, dir: fmt.Sprintf("%s/snapshot-%d", c.dir, c.snapshots)}
	c.mu.Unlock()
	if err := c.etcd.copyData(ctx, s.dir); err != nil {
		return nil, fmt.Errorf("take a snapshot of cluster %s: %w", c.name, err)
	}
	return s, nil
}

// Rollback restores an earlier state of the cluster, as an operator does who
// restores a backup of etcd: all processes end, and start with the old data.
// Resource versions go back, and what was written since never happened, while
// identity and certificates stay. A snapshot can be restored many times.
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

// PauseEtcd stops etcd as SIGSTOP does. The API server lives on and answers
// what needs no storage.
func (c *Cluster) PauseEtcd() error {
	ctx, cancel := context.WithTimeout(context.Background(), signalTimeout)
	defer cancel()
	return c.etcd.pause(ctx)
}

// ResumeEtcd lets a paused etcd go on.
func (c *Cluster) ResumeEtcd() error { return c.etcd.resume() }

// KillEtcd ends etcd at once, by SIGKILL. The API server lives on and answers
// what needs no storage; StartEtcd brings etcd back.
func (c *Cluster) KillEtcd() error {
	_, done, err := c.begin(context.Background())
	if err != nil {
		return err
	}
	defer done()
	return c.etcd.kill()
}

// StartEtcd starts etcd again after KillEtcd, with the same data and port. It
// does nothing if etcd runs.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return c.etcd.begin(ctx)
}

// AddReplica starts a further API server for the cluster, on a port of its own
// and on the same etcd. It is of the version of the first one unless an option
// says otherwise.
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
	name := fmt.Sprintf("replica-%d", len(c.replicas)+1)
	c.mu.Unlock()
	a, err := newAPIServer(c, name, as)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.replicas = append(c.replicas, a) // from here on Stop closes it
	c.mu.Unlock()
	if err := a.run(ctx); err != nil {
		return nil, errors.Join(err, a.proc.kill())
	}
	return a, nil
}
