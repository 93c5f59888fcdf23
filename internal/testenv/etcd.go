// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fleetcache/fleetcache/internal/testenv/internal/port"
)

// etcdServer is the etcd of a cluster. The caller serializes its methods.
type etcdServer struct {
	*server

	envtest *envtest.Etcd
	port    *port.Reservation
	data    string // its data directory
}

// newEtcd prepares an etcd in a new directory.
func newEtcd(dir, program string, t *thread) (*etcdServer, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	reserved, err := port.Reserve()
	if err != nil {
		return nil, err
	}
	s, err := newServer(dir, "etcd", program, t)
	if err != nil {
		return nil, errors.Join(err, reserved.Close())
	}
	e := &etcdServer{server: s, port: reserved, data: filepath.Join(dir, "data")}
	e.envtest = &envtest.Etcd{
		Path:         s.path,
		URL:          &url.URL{Scheme: "http", Host: reserved.Addr()},
		DataDir:      e.data,
		StartTimeout: startTimeout,
		Out:          s.output,
		Err:          s.output,
	}
	e.envtest.Configure().
		Set("listen-peer-urls", "http://"+port.Host+":0"). // there are no peers
		Set("log-level", "warn")
	s.start, s.stop = e.envtest.Start, e.envtest.Stop

	return e, nil
}

// begin creates the data directory if necessary, and starts etcd unless it is
// running. A second etcd would end because its port is taken, and would look
// like a failed start unless the health of the first one is seen before that.
func (e *etcdServer) begin(ctx context.Context) error {
	if pid, err := e.pid(); err != nil || pid != 0 {
		return err
	}
	if err := os.MkdirAll(e.data, 0o700); err != nil {
		return err
	}
	return e.run(ctx)
}

// replaceData replaces the data with a copy of another directory, or with
// nothing if from is empty. etcd must not be running.
func (e *etcdServer) replaceData(from string) error {
	if err := os.RemoveAll(e.data); err != nil {
		return err
	}
	if from == "" {
		return nil
	}
	return copyTree(from, e.data)
}

// copyData copies the data to a new directory. It pauses etcd, so that the copy
// shows one moment. An etcd that starts from the copy finds the same state as
// after a crash, for which etcd is designed: it writes its log ahead, and never
// overwrites valid pages.
func (e *etcdServer) copyData(ctx context.Context, to string) error {
	if err := e.pause(ctx); err != nil {
		return err
	}
	return errors.Join(copyTree(e.data, to), e.resume())
}

// close ends etcd for good and releases its resources.
func (e *etcdServer) close() error {
	return errors.Join(e.kill(), e.output.Close(), e.port.Close())
}
