// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fleetcache/fleetcache/internal/certs"
	"github.com/fleetcache/fleetcache/internal/testenv/internal/port"
)

// APIServer is a kube-apiserver process of a cluster: either the first one,
// whose methods are also those of the [Cluster], or one that
// [Cluster.AddReplica] added. Its methods are safe for concurrent use.
type APIServer struct {
	cluster *Cluster
	proc    *server
	envtest *envtest.APIServer
	port    *port.Reservation
	dir     string // certificates, logs
	as      settings

	// mu protects the fields below.
	mu sync.Mutex
	ca certs.Pair // signed the server's current certificate
}

// newAPIServer prepares an API server in a new directory of its cluster.
func newAPIServer(c *Cluster, name string, as settings) (*APIServer, error) {
	a := &APIServer{cluster: c, dir: filepath.Join(c.dir, name), as: as}
	if err := os.Mkdir(a.dir, 0o700); err != nil {
		return nil, err
	}
	err := errors.Join(
		writePair(c.pki.tokens, a.dir, tokenFile),
		os.WriteFile(a.path(policyFile), []byte(auditPolicy), 0o600),
	)
	if err != nil {
		return nil, err
	}
	if err := a.certify(c.authority(), time.Now().Add(-validity), time.Now().Add(validity)); err != nil {
		return nil, err
	}
	if a.port, err = port.Reserve(); err != nil {
		return nil, err
	}
	if a.proc, err = newServer(a.dir, "kube-apiserver", as.program, c.thread); err != nil {
		return nil, errors.Join(err, a.port.Close())
	}
	a.configure()

	return a, nil
}

// configure sets up envtest's API server so that every start is the same: the
// certificates already exist, so envtest generates none, and all ports are
// given.
func (a *APIServer) configure() {
	a.envtest = &envtest.APIServer{
		Path:         a.proc.path,
		CertDir:      a.dir,
		EtcdURL:      &url.URL{Scheme: "http", Host: a.cluster.etcd.port.Addr()},
		StartTimeout: startTimeout,
		Out:          a.proc.output,
		Err:          a.proc.output,
		SecureServing: envtest.SecureServing{
			ListenAddr: envtest.ListenAddr{Address: port.Host, Port: strconv.Itoa(a.port.Port())},
			Authn:      certAuthn{a.cluster.pki},
		},
	}
	args := a.envtest.Configure()
	// The issuer names the cluster, not the server, so that a replica accepts
	// its tokens.
	args.Set("service-account-issuer", "https://kubernetes.default.svc")
	args.Set("profiling", "false")
	// Otherwise an open watch delays the end after SIGTERM by a minute.
	args.Set("shutdown-watch-termination-grace-period", "2s")
	configureAudit(args, a)
	for _, arg := range slices.Concat(a.cluster.options.apiServerArgs, a.as.args) {
		args.Set(arg[0], arg[1])
	}
	a.proc.start, a.proc.stop = a.envtest.Start, a.envtest.Stop
}

func (a *APIServer) path(file string) string { return filepath.Join(a.dir, file) }

// certify issues the serving certificate that the server uses from its next
// start on.
func (a *APIServer) certify(by certs.Pair, notBefore, notAfter time.Time) error {
	if err := writePair(serverCert(by, notBefore, notAfter), a.dir, servingFile); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ca = by

	return nil
}

// Addr returns the host:port of the server, which never changes.
func (a *APIServer) Addr() string { return a.port.Addr() }

// CA returns the certificate, in PEM, of the authority that signed the server's
// current certificate.
func (a *APIServer) CA() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.ca.Cert)
}

// Config returns a new config for the administrator (system:masters), without
// client-side rate limiting.
func (a *APIServer) Config() *rest.Config {
	return configFor(a.Addr(), a.CA(), a.cluster.admin)
}

// Kubeconfig returns a kubeconfig for the administrator with all data inline.
func (a *APIServer) Kubeconfig() []byte { return Kubeconfig(a.Config()) }

// Redirect returns a copy of a config for this cluster, for any user, that
// connects to this server and trusts its CA.
func (a *APIServer) Redirect(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = "https://" + a.Addr()
	config.CAData = a.CA()
	return config
}

// StopAPIServer ends the process gracefully, with SIGTERM, and waits for it.
// The stored data remains, and StartAPIServer starts the server again. An open
// watch does not delay the end.
func (a *APIServer) StopAPIServer(ctx context.Context) error {
	ctx, done, err := a.cluster.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return a.proc.terminate(ctx)
}

// Kill ends the process at once, with SIGKILL, and waits until it has ended.
func (a *APIServer) Kill() error {
	_, done, err := a.cluster.begin(context.Background())
	if err != nil {
		return err
	}
	defer done()
	return a.proc.kill()
}

// StartAPIServer starts the process again after StopAPIServer or Kill, on the
// same port, with the same data, certificates and arguments. It returns when
// the server is ready, or at once if it is running.
func (a *APIServer) StartAPIServer(ctx context.Context) error {
	ctx, done, err := a.cluster.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return a.run(ctx)
}

// Restart calls StopAPIServer and StartAPIServer.
func (a *APIServer) Restart(ctx context.Context) error {
	ctx, done, err := a.cluster.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := a.proc.terminate(ctx); err != nil {
		return err
	}
	return a.run(ctx)
}

// Pause suspends the process with SIGSTOP: its sockets stay open, and the
// kernel still accepts connections and acknowledges bytes, but the server does
// not respond.
func (a *APIServer) Pause() error {
	ctx, cancel := context.WithTimeout(context.Background(), signalTimeout)
	defer cancel()
	return a.proc.pause(ctx)
}

// Resume continues a paused process.
func (a *APIServer) Resume() error { return a.proc.resume() }

// run starts the process unless it is running, and waits until it is ready.
func (a *APIServer) run(ctx context.Context) error {
	pid, err := a.proc.pid()
	if err != nil {
		return err
	}
	if pid == 0 {
		if err := a.mendAudit(); err != nil {
			return err
		}
		if err := a.proc.run(ctx); err != nil {
			return err
		}
	}

	if err := a.ready(ctx); err != nil {
		return fmt.Errorf("wait for %s: %w\n%s", a.Addr(), err, a.proc.tail())
	}
	return nil
}

// close ends the server for good and releases its resources.
func (a *APIServer) close() error {
	return errors.Join(a.proc.kill(), a.proc.output.Close(), a.port.Close())
}
