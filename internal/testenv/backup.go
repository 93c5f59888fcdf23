// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fleetcache/fleetcache/internal/testenv/assets"
)

// Backup is a backup of a cluster's etcd, made as Kubernetes' documentation
// describes. It exists as long as the cluster.
type Backup struct {
	cluster *Cluster
	file    string
}

// Backup saves a backup with etcdctl snapshot save. It first builds the
// programs if necessary.
func (c *Cluster) Backup(ctx context.Context) (*Backup, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	tools, err := assets.FindEtcdTools(ctx, c.options.log)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.mu.snapshots++
	b := &Backup{cluster: c, file: filepath.Join(c.dir, fmt.Sprintf("backup-%d.db", c.mu.snapshots))}
	c.mu.Unlock()

	err = command(ctx, tools.Etcdctl, "--endpoints", "http://"+c.etcd.port.Addr(), "snapshot", "save", b.file)
	if err != nil {
		return nil, fmt.Errorf("back up cluster %s: %w", c.name, err)
	}
	return b, nil
}

// Restore restores a backup as Kubernetes' documentation describes: all
// processes end, etcdutl snapshot restore recreates the data with revisions
// increased by a thousand million and all earlier ones marked as compacted, and
// all processes start again. [Cluster.Rollback], in contrast, copies a data
// directory, after which resource versions go back.
func (c *Cluster) Restore(ctx context.Context, b *Backup) error {
	if b.cluster != c {
		return fmt.Errorf("restore cluster %s: the backup is of cluster %s", c.name, b.cluster.name)
	}
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	tools, err := assets.FindEtcdTools(ctx, c.options.log)
	if err != nil {
		return err
	}
	if err := c.killAll(); err != nil {
		return err
	}
	if err := c.etcd.replaceData(""); err != nil {
		return err
	}
	err = command(ctx, tools.Etcdutl, "snapshot", "restore", b.file,
		"--bump-revision", "1000000000", "--mark-compacted", "--data-dir", c.etcd.data)
	if err != nil {
		return fmt.Errorf("restore cluster %s: %w", c.name, err)
	}
	return c.startAll(ctx)
}

// command runs a program to its end. Its error contains the program's output.
func command(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
	output, err := cmd.CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", filepath.Base(program), err), errors.New(string(output)))
	}
	return nil
}
