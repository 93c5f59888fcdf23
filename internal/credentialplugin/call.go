// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package credentialplugin

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientauthv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientauthv1beta1 "k8s.io/client-go/pkg/apis/clientauthentication/v1beta1"
	authexec "k8s.io/client-go/plugin/pkg/client/auth/exec"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
)

const (
	kind = "ExecCredential"
	// infoVariable tells a plugin what it is asked for.
	infoVariable = "KUBERNETES_EXEC_INFO"
	// maxAnswer bounds what a plugin may write, in bytes.
	maxAnswer = 1 << 20
	// pipePatience is how long the end of a plugin is waited for if a process
	// that it started keeps its output open.
	pipePatience = 100 * time.Millisecond
)

// call is how a plugin is run.
type call struct {
	command string
	args    []string
	env     []string // besides the environment of this process
	version string
	policy  api.PluginPolicy
}

func newCall(config *rest.Config) (call, error) {
	plugin := config.ExecProvider
	versions := []string{clientauthv1.SchemeGroupVersion.String(), clientauthv1beta1.SchemeGroupVersion.String()}
	switch {
	case plugin.Command == "":
		return call{}, errors.New("the credential plugin has no command")
	case !slices.Contains(versions, plugin.APIVersion):
		return call{}, errors.New("the credential plugin has an apiVersion that is not known")
	case plugin.InteractiveMode == api.AlwaysExecInteractiveMode:
		return call{}, errors.New("the credential plugin needs a terminal")
	}
	if err := authexec.ValidatePluginPolicy(plugin.PluginPolicy); err != nil {
		return call{}, fmt.Errorf("the policy for credential plugins: %w", err)
	}
	info, err := infoOf(config)
	if err != nil {
		return call{}, err
	}
	c := call{
		command: filepath.Clean(plugin.Command),
		args:    slices.Clone(plugin.Args),
		version: plugin.APIVersion,
		policy:  plugin.PluginPolicy,
	}
	for _, variable := range plugin.Env {
		c.env = append(c.env, variable.Name+"="+variable.Value)
	}
	c.env = append(c.env, infoVariable+"="+string(info))

	return c, nil
}

// infoOf returns the question to a plugin. Both versions write it alike.
func infoOf(config *rest.Config) ([]byte, error) {
	info := clientauthv1.ExecCredential{TypeMeta: metav1.TypeMeta{
		Kind:       kind,
		APIVersion: config.ExecProvider.APIVersion,
	}}
	if config.ExecProvider.ProvideClusterInfo {
		cluster, err := rest.ConfigToExecCluster(config)
		if err != nil {
			return nil, err
		}
		info.Spec.Cluster = &clientauthv1.Cluster{
			Server:                   cluster.Server,
			TLSServerName:            cluster.TLSServerName,
			InsecureSkipTLSVerify:    cluster.InsecureSkipTLSVerify,
			CertificateAuthorityData: cluster.CertificateAuthorityData,
			ProxyURL:                 cluster.ProxyURL,
			DisableCompression:       cluster.DisableCompression,
			Config:                   runtime.RawExtension{Object: cluster.Config},
		}
	}
	return json.Marshal(info)
}

// run runs the plugin and returns what it wrote. The end of ctx kills it, and
// the processes that it started. It returns when the plugin has ended. Its
// errors continue a sentence that names the plugin, and quote nothing.
func (c call) run(ctx context.Context) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.command, c.args...)
	if err := c.permits(cmd); err != nil {
		return nil, err
	}
	answer := &limited{}
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = answer, os.Stderr
	cmd.WaitDelay = pipePatience
	killTogether(cmd)
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it has ended with success, and something that it started goes on
	}
	if err != nil {
		return nil, explain(err)
	}
	return answer.buffer.Bytes(), nil
}

// permits returns nil if the policy permits the command: by its name, or by the
// file that its name leads to.
func (c call) permits(cmd *exec.Cmd) error {
	switch c.policy.PolicyType {
	case api.PluginPolicyDenyAll:
		return errors.New("is not allowed by the policy for credential plugins")
	case api.PluginPolicyAllowlist:
	default:
		return nil
	}
	for _, entry := range c.policy.Allowlist {
		if entry.Command == c.command || entry.Command == cmd.Path {
			return nil
		}
		if path, err := exec.LookPath(entry.Command); err == nil && path == cmd.Path {
			return nil
		}
	}

	return errors.New("is not allowed by the policy for credential plugins")
}

// explain returns an error without the path and the arguments.
func explain(err error) error {
	if errors.Is(err, errTooLong) {
		return errTooLong
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("failed: %s", exit.ProcessState)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("cannot be run: %w", exec.ErrNotFound)
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("cannot be run: %w", path.Err)
	}
	return errors.New("cannot be run")
}

var errTooLong = fmt.Errorf("returned more than %d bytes", maxAnswer)

// limited is a buffer of at most maxAnswer bytes. It has no other method of the
// buffer, by which more could be written.
type limited struct{ buffer bytes.Buffer }

func (l *limited) Write(data []byte) (int, error) {
	if l.buffer.Len()+len(data) > maxAnswer {
		return 0, errTooLong
	}
	return l.buffer.Write(data)
}

// decode returns the credentials in an answer. Its errors continue a sentence
// that names the plugin, and quote nothing of the answer.
func (c call) decode(answer []byte) (*Credentials, error) {
	var document clientauthv1.ExecCredential
	err := json.Unmarshal(answer, &document)
	status := document.Status
	switch {
	case err != nil || document.Kind != kind:
		return nil, errors.New("returned no ExecCredential")
	case document.APIVersion != c.version:
		return nil, errors.New("returned another apiVersion than the one that it is configured with")
	case status == nil:
		return nil, errors.New("returned no status")
	case (status.ClientCertificateData == "") != (status.ClientKeyData == ""):
		return nil, errors.New("returned a client certificate or a key, and not both")
	case status.Token == "" && status.ClientCertificateData == "":
		return nil, errors.New("returned neither a token nor a client certificate")
	}

	out := &Credentials{Token: status.Token}
	if status.ExpirationTimestamp != nil {
		out.expires = status.ExpirationTimestamp.Time
	}
	if status.ClientCertificateData == "" {
		return out, nil
	}
	pair, err := tls.X509KeyPair([]byte(status.ClientCertificateData), []byte(status.ClientKeyData))
	if err == nil && pair.Leaf == nil {
		pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0])
	}
	if err != nil {
		return nil, errors.New("returned a client certificate and a key that do not belong together")
	}
	out.Certificate = &pair

	return out, nil
}
