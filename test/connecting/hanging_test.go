// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// pluginVariable makes the test's binary a credential plugin, and names a file.
// If that exists, the plugin deletes it, and returns a token that expires soon;
// otherwise it hangs.
const pluginVariable = "FLEETCACHE_TEST_PLUGIN"

func playPlugin(file string) {
	expires := time.Now().Add(time.Second).UTC().Format(time.RFC3339)
	if os.Remove(file) == nil {
		const answer = `{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", ` +
			`"status": {"token": "t", "expirationTimestamp": %q}}`
		_, _ = fmt.Fprintf(os.Stdout, answer, expires)
		return
	}
	time.Sleep(time.Hour)
}

// withPlugin adds the test's binary as a plugin to a configuration.
func withPlugin(t *testing.T, config *rest.Config, file string) *rest.Config {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	config.BearerToken = ""
	config.ExecProvider = &api.ExecConfig{
		APIVersion:      "client.authentication.k8s.io/v1",
		Command:         path,
		Args:            []string{"s3cret-argument"},
		Env:             []api.ExecEnvVar{{Name: pluginVariable, Value: file}},
		InteractiveMode: api.NeverExecInteractiveMode,
	}
	return config
}

// hasReason reports whether a status says why there is no connection, what was
// waited for, and when it is tried again.
func hasReason(s status.Cluster) bool {
	return s.Phase == status.PhaseDisconnected && s.Reason != "" && s.LastError != nil && s.Failures > 0 &&
		!s.NextAttempt.IsZero()
}

// TestHazardPluginThatHangsHasAReason: a cluster does not wait for a credential
// plugin without saying so, whether it hangs from the beginning or once it was
// connected. Nothing of it is left when the cache ends.
func TestHazardPluginThatHangsHasAReason(t *testing.T) {
	for name, rotates := range map[string]bool{"at first": false, "on rotation": true} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "first")
			if rotates {
				require.NoError(t, os.WriteFile(file, nil, 0o600))
			}
			api := fleettest.NewAPI(t, "uid-a")
			d := fleettest.NewDirectory()
			d.Set(fleettest.Key("a"), withPlugin(t, api.Config(), file))
			o := fleettest.Silent(d)
			o.ProbeTimeout, o.ProbeInterval = 300*time.Millisecond, time.Second
			o.RetryInterval, o.MaxBackoff = time.Second, time.Second
			if rotates {
				o.ProbeTimeout = 2 * time.Second // the first run answers
			}
			cc := fleettest.Start(t, o)
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
			var s status.Cluster
			require.Eventually(t, func() bool {
				s = fleettest.Status(t, cc)
				return hasReason(s)
			}, fleettest.Patience, 20*time.Millisecond, "%+v", s)
			require.Equal(t, "Timeout", s.Reason)
			require.ErrorContains(t, s.LastError, "fleet/a")
			require.ErrorContains(t, s.LastError, "credential plugin connecting.test")
			require.NotContains(t, s.LastError.Error(), "s3cret")
			require.NotContains(t, s.LastError.Error(), file)
			if rotates {
				require.NotZero(t, api.Total())
			} else {
				require.Zero(t, api.Dialled(), "nothing is sent without credentials")
			}

			d.Set(fleettest.Key("a"), api.Config()) // healing needs no restart
			require.Eventually(t, func() bool {
				return fleettest.Status(t, cc).Phase == status.PhaseReady
			}, fleettest.Patience, 20*time.Millisecond)
		})
	}
}

// TestHazardWhatHangsHasAReason: neither does it wait for anything else, whether
// or not that heeds its context.
func TestHazardWhatHangsHasAReason(t *testing.T) {
	deaf := func(forever <-chan struct{}) func(context.Context, string, string) (net.Conn, error) {
		return func(context.Context, string, string) (net.Conn, error) {
			<-forever
			return nil, net.ErrClosed
		}
	}
	for name, test := range map[string]struct {
		change func(t *testing.T, config *rest.Config, forever <-chan struct{}) // nil: the resolver hangs
		err    string
	}{
		"token source": {func(_ *testing.T, config *rest.Config, forever <-chan struct{}) {
			config.Wrap(func(http.RoundTripper) http.RoundTripper {
				return roundTripper(func(*http.Request) (*http.Response, error) {
					<-forever
					return nil, net.ErrClosed
				})
			})
		}, "WrapTransport does not heed its context"},
		"dial": {func(_ *testing.T, config *rest.Config, forever <-chan struct{}) {
			config.Dial = deaf(forever)
		}, "waiting for a connection: context deadline exceeded"},
		"dial for HTTP/2": {func(_ *testing.T, config *rest.Config, forever <-chan struct{}) {
			config.Host, config.Insecure, config.Dial = "https://fake.test", true, deaf(forever)
		}, "waiting for a connection: context deadline exceeded"},
		"TLS handshake": {func(t *testing.T, config *rest.Config, _ <-chan struct{}) {
			config.Host, config.Insecure = "https://fake.test", true
			config.Dial = func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				t.Cleanup(func() { _ = theirs.Close() })
				go func() { _, _ = io.Copy(io.Discard, theirs) }()
				return ours, nil
			}
		}, "waiting for a connection: context deadline exceeded"},
		"resolver": {nil, "Resolver.Resolve does not heed its context"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				forever := make(chan struct{})
				config := fleettest.NewAPI(t, "uid-a").Config()
				if test.change != nil {
					test.change(t, config, forever)
				}
				d := fleettest.NewDirectory()
				d.Answer(fleettest.Key("a"), func() (resolver.Access, error) {
					if test.change == nil {
						<-forever
					}
					return resolver.NewAccess(config)
				})
				o := fleettest.Silent(d)
				o.ProbeTimeout = 5 * time.Second
				cc := fleettest.Start(t, o)
				t.Cleanup(func() { close(forever) })
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				for range 20 {
					time.Sleep(time.Minute)
					synctest.Wait()
					s := fleettest.Status(t, cc)
					if s.NextAttempt.IsZero() { // one is under way
						time.Sleep(o.ProbeTimeout + time.Second/2)
						s = fleettest.Status(t, cc)
					}
					require.True(t, hasReason(s), "%+v", s)
					require.ErrorContains(t, s.LastError, "fleet/a")
					require.ErrorContains(t, s.LastError, test.err)
				}
			})
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
