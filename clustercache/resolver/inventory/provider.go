// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

// Provider is how an operator gets credentials of an access provider.
type Provider struct {
	// Name is the provider's, as ClusterProfiles have it in
	// status.accessProviders. Required.
	Name string `json:"name"`
	// Exec is the credential plugin. Its Command is required, as is the
	// APIVersion, client.authentication.k8s.io/v1 or v1beta1. It has no
	// terminal.
	Exec clientcmdv1.ExecConfig `json:"execConfig"`
}

// ErrNoProviders indicates that nothing was configured to get credentials with.
var ErrNoProviders = errors.New("inventory: no provider is configured")

// ProviderError indicates that a provider of the operator's configuration is
// unusable.
type ProviderError struct {
	// Index is its place in the configuration, and Field the field at fault.
	Index int
	Field string
	// Reason describes the fault.
	Reason string
}

// Error names the provider, the field and the reason.
func (e *ProviderError) Error() string {
	return fmt.Sprintf("inventory: providers[%d].%s %s", e.Index, e.Field, e.Reason)
}

// ParseProviders reads the file with which programs configure their providers:
// a JSON object with the list providers, each with a name and an execConfig. It
// is strict, since it decides which programs run: unknown fields are errors. So
// are the policies by which objects would add arguments or variables, unless
// they are Ignore. The file must be the operator's own. The errors are an
// [*ProviderError], [ErrNoProviders], and those of the decoder.
func ParseProviders(data []byte) ([]Provider, error) {
	var file struct {
		Providers []struct {
			Provider

			Args string `json:"profileSourcedCLIArgsPolicy,omitempty"`
			Envs string `json:"profileSourcedEnvVarsPolicy,omitempty"`
		} `json:"providers"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return nil, fmt.Errorf("inventory: providers cannot be read: %w", err)
	}
	if decoder.More() {
		return nil, errors.New("inventory: providers are followed by something else")
	}

	out := make([]Provider, 0, len(file.Providers))
	for i, p := range file.Providers {
		for field, policy := range map[string]string{
			"profileSourcedCLIArgsPolicy": p.Args,
			"profileSourcedEnvVarsPolicy": p.Envs,
		} {
			if policy != "" && policy != "Ignore" {
				return nil, &ProviderError{i, field, "is not supported: objects add nothing to a command"}
			}
		}
		out = append(out, p.Provider)
	}

	return out, check(out)
}

// check returns why providers are unusable.
func check(providers []Provider) error {
	if len(providers) == 0 {
		return ErrNoProviders
	}
	for i, p := range providers {
		switch {
		case p.Name == "":
			return &ProviderError{i, "name", "is empty"}
		case slices.ContainsFunc(providers[:i], func(q Provider) bool { return q.Name == p.Name }):
			return &ProviderError{i, "name", "is that of another provider"}
		case p.Exec.Command == "":
			return &ProviderError{i, "execConfig.command", "is empty"}
		case p.Exec.APIVersion == "":
			return &ProviderError{i, "execConfig.apiVersion", "is empty"}
		}
	}

	return nil
}
