// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package credentialplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

// roleVariable makes the test's binary a plugin that does what it says.
const roleVariable = "FLEETCACHE_TEST_PLUGIN"

const version = "client.authentication.k8s.io/v1"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

// play is the main function of a plugin.
func play(role string) int {
	switch role {
	case "token":
		fmt.Print(answer(`"token": "t"`)) //nolint:forbidigo // what a plugin does
	case "fail":
		return 3
	case "flood":
		_, _ = io.Copy(os.Stdout, endless{})
	case "hang":
		time.Sleep(time.Hour)
	case "parent": // its child keeps the pipe open
		child := exec.CommandContext(context.Background(), os.Args[0], os.Args[1:]...)
		child.Env = append(os.Environ(), roleVariable+"=hang")
		child.Stdout = os.Stdout
		_ = child.Start()
		time.Sleep(time.Hour)
	case "daemon": // it ends, and its child goes on
		child := exec.CommandContext(context.Background(), "sleep", "1")
		child.Stdout = os.Stdout
		_ = child.Start()
		fmt.Print(answer(`"token": "t"`)) //nolint:forbidigo // what a plugin does
	}
	return 0
}

type endless struct{}

func (endless) Read(into []byte) (int, error) { return len(into), nil }

func answer(status string) string {
	return `{"kind": "ExecCredential", "apiVersion": "` + version + `", "status": {` + status + `}}`
}

// config names the test's binary as a plugin with a role.
func config(t *testing.T, role string) *rest.Config {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return &rest.Config{Host: "https://c.example", ExecProvider: &api.ExecConfig{
		APIVersion: version,
		Command:    path,
		Args:       []string{"s3cret-argument"},
		Env:        []api.ExecEnvVar{{Name: roleVariable, Value: role}},
	}}
}

// owner spawns what it then waits for.
type owner struct {
	wg     sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

func newOwner(t *testing.T) *owner {
	o := &owner{}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	t.Cleanup(o.end)
	return o
}

func (o *owner) end() {
	o.cancel()
	o.wg.Wait()
}

func (o *owner) spawn(f func(context.Context)) bool {
	if o.ctx.Err() != nil {
		return false
	}
	o.wg.Go(func() { f(o.ctx) })
	return true
}

// TestPlugins runs real programs.
func TestPlugins(t *testing.T) {
	const name = "credential plugin credentialplugin.test "
	for role, want := range map[string]struct{ token, err string }{
		"token":  {token: "t"},
		"daemon": {token: "t"},
		"fail":   {err: name + "failed: exit status 3"},
		"silent": {err: name + "returned no ExecCredential"},
		"flood":  {err: name + "failed: signal: broken pipe"},
	} {
		t.Run(role, func(t *testing.T) {
			p, err := New(config(t, role), newOwner(t).spawn)
			require.NoError(t, err)
			creds, err := p.Credentials(t.Context())
			if want.err != "" {
				require.EqualError(t, err, want.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, want.token, creds.Token)
		})
	}

	t.Run("no such program", func(t *testing.T) {
		for command, want := range map[string]string{
			"no-such-plugin":              exec.ErrNotFound.Error(),
			"/s3cret/path/no-such-plugin": "no such file or directory",
		} {
			c := config(t, "token")
			c.ExecProvider.Command = command
			p, err := New(c, newOwner(t).spawn)
			require.NoError(t, err)
			_, err = p.Credentials(t.Context())
			require.EqualError(t, err, "credential plugin no-such-plugin cannot be run: "+want)
		}
	})
}

// TestHazardPluginThatHangsIsKilled: with the process that it started, when the
// owner ends, which waits for it.
func TestHazardPluginThatHangsIsKilled(t *testing.T) {
	for _, role := range []string{"hang", "parent"} {
		t.Run(role, func(t *testing.T) {
			o := newOwner(t)
			p, err := New(config(t, role), o.spawn)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err = p.Credentials(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.EqualError(t, err, "waiting for the credential plugin credentialplugin.test: "+
				context.DeadlineExceeded.Error())

			waits := make(chan error, 1)
			go func() {
				_, err := p.Credentials(context.Background())
				waits <- err
			}()
			o.end()
			err = <-waits
			require.ErrorIs(t, err, context.Canceled)
			require.NotContains(t, err.Error(), "s3cret")
			_, err = p.Credentials(t.Context())
			require.Error(t, err)
		})
	}
}

// TestPluginsAreToldTheCluster: if they want to know.
func TestPluginsAreToldTheCluster(t *testing.T) {
	c := config(t, "token")
	c.CAData = []byte("ca")
	plain, err := newCall(c)
	require.NoError(t, err)
	require.Contains(t, plain.env, infoVariable+`={"kind":"ExecCredential","apiVersion":"`+version+
		`","spec":{"interactive":false}}`)

	c.ExecProvider.ProvideClusterInfo = true
	c.ExecProvider.Config = &runtime.Unknown{Raw: []byte(`{"audience":"a"}`), ContentType: runtime.ContentTypeJSON}
	told, err := newCall(c)
	require.NoError(t, err)
	require.Contains(t, told.env[len(told.env)-1], `"cluster":{"server":"https://c.example",`+
		`"certificate-authority-data":"Y2E=","config":{"audience":"a"}}`)
	one, two := &Plugin{call: plain}, &Plugin{call: told}
	require.False(t, one.Same(two))
	require.True(t, two.Same(two))
}

// fake returns a plugin whose runs are those of a function.
func fake(t *testing.T, run func(context.Context) ([]byte, error)) *Plugin {
	t.Helper()
	p, err := New(config(t, "fake"), newOwner(t).spawn)
	require.NoError(t, err)
	p.ask = run
	return p
}

// TestHazardPluginThatHangsBlocksForGood: a request waits no longer than its
// context lasts, one run serves all, and after MaxRun another one begins.
func TestHazardPluginThatHangsBlocksForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		p := fake(t, func(ctx context.Context) ([]byte, error) {
			if runs.Add(1) == 1 {
				<-ctx.Done()
				return nil, errors.New("failed: signal: killed")
			}
			return []byte(answer(`"token": "two"`)), nil
		})
		began := time.Now()
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := p.Credentials(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		group.Wait()
		require.Equal(t, 5*time.Second, time.Since(began))
		_, err := p.Credentials(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "was killed after 15s")
		require.Equal(t, MaxRun, time.Since(began))
		_, err = p.Credentials(t.Context())
		require.ErrorContains(t, err, "was killed", "requests do not start one process after the other")
		require.EqualValues(t, 1, runs.Load())

		time.Sleep(pause)
		creds, err := p.Credentials(t.Context())
		require.NoError(t, err)
		require.Equal(t, "two", creds.Token)
	})
}

// TestSlowPluginServesTheNextRequest: one that takes longer than a request
// waits.
func TestSlowPluginServesTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fake(t, func(context.Context) ([]byte, error) {
			time.Sleep(8 * time.Second)
			return []byte(answer(`"token": "late"`)), nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := p.Credentials(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		creds, err := p.Credentials(t.Context())
		require.NoError(t, err)
		require.Equal(t, "late", creds.Token)
	})
}

// TestCredentialsAreUsedUntilTheyExpireOrAreRejected: and no longer.
func TestCredentialsAreUsedUntilTheyExpireOrAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		p := fake(t, func(context.Context) ([]byte, error) {
			expires := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
			return fmt.Appendf(nil, answer(`"token": "%d", "expirationTimestamp": "%s"`), runs.Add(1), expires), nil
		})
		token := func() string {
			creds, err := p.Credentials(t.Context())
			require.NoError(t, err)
			return creds.Token
		}
		require.Equal(t, "1", token())
		time.Sleep(59 * time.Second)
		require.Equal(t, "1", token())
		time.Sleep(2 * time.Second)
		require.Equal(t, "2", token())

		sent := time.Now()
		p.Forget(sent.Add(-time.Second)) // of an older request
		require.Equal(t, "2", token())
		time.Sleep(time.Second)
		p.Forget(time.Now())
		require.Equal(t, "3", token())
	})
}

// TestAnswersOfPluginsAreChecked: nothing of them is quoted.
func TestAnswersOfPluginsAreChecked(t *testing.T) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("c", nil, nil)
	require.NoError(t, err)
	_, foreign, err := cert.GenerateSelfSignedCertKey("c", nil, nil)
	require.NoError(t, err)
	quote := func(data []byte) string { return fmt.Sprintf("%q", data) }
	pair := func(key []byte) string {
		return `"clientCertificateData": ` + quote(certificate) + `, "clientKeyData": ` + quote(key)
	}
	c := call{version: version}
	for text, want := range map[string]string{
		"s3cret":                "returned no ExecCredential",
		`{"kind": "s3cret"}`:    "returned no ExecCredential",
		answer(`"s3cret": "x"`): "returned neither a token nor a client certificate",
		`{"kind": "ExecCredential", "apiVersion": "` + version + `"}`: "returned no status",
		strings.Replace(answer(`"token": "s3cret"`), "/v1", "/v1beta1", 1): "returned another apiVersion than " +
			"the one that it is configured with",
		answer(`"clientKeyData": "s3cret"`): "returned a client certificate or a key, and not both",
		answer(pair(foreign)):               "returned a client certificate and a key that do not belong together",
	} {
		_, err := c.decode([]byte(text))
		require.EqualError(t, err, want)
	}
	creds, err := c.decode([]byte(answer(pair(key))))
	require.NoError(t, err)
	require.Equal(t, "c", creds.Certificate.Leaf.Subject.CommonName[:1])
}

// TestPluginsThatCannotRunAreRefused: before anything runs.
func TestPluginsThatCannotRunAreRefused(t *testing.T) {
	deny := api.PluginPolicy{PolicyType: api.PluginPolicyDenyAll}
	const always = api.AlwaysExecInteractiveMode
	only := api.PluginPolicy{PolicyType: api.PluginPolicyAllowlist, Allowlist: []api.AllowlistEntry{{Command: "other"}}}
	for name, test := range map[string]struct {
		change func(*rest.Config)
		config bool // the configuration cannot be used
	}{
		"no command":    {func(c *rest.Config) { c.ExecProvider.Command = "" }, true},
		"version":       {func(c *rest.Config) { c.ExecProvider.APIVersion = "v1" }, true},
		"terminal":      {func(c *rest.Config) { c.ExecProvider.InteractiveMode = always }, true},
		"auth provider": {func(c *rest.Config) { c.AuthProvider = &api.AuthProviderConfig{} }, true},
		"bad policy":    {func(c *rest.Config) { c.ExecProvider.PluginPolicy.PolicyType = "?" }, true},
		"denied":        {func(c *rest.Config) { c.ExecProvider.PluginPolicy = deny }, false},
		"not listed":    {func(c *rest.Config) { c.ExecProvider.PluginPolicy = only }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, "token")
			test.change(c)
			p, err := New(c, newOwner(t).spawn)
			if test.config {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			_, err = p.Credentials(t.Context())
			require.ErrorContains(t, err, "is not allowed by the policy")
		})
	}

	c := config(t, "token")
	c.BearerToken = "t"
	p, err := New(c, newOwner(t).spawn)
	require.NoError(t, err)
	require.Nil(t, p, "a token takes precedence")
}
