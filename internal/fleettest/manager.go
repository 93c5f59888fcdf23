// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Manager implements the part of a manager that is used without a hub.
type Manager struct {
	manager.Manager

	Scheme  *runtime.Scheme
	Added   []manager.Runnable
	Healthz map[string]healthz.Checker
	Readyz  map[string]healthz.Checker
}

// NewManager returns a Manager that runs nothing.
func NewManager() *Manager {
	return &Manager{Scheme: scheme.Scheme, Healthz: map[string]healthz.Checker{}, Readyz: map[string]healthz.Checker{}}
}

// GetScheme implements manager.Manager.
func (m *Manager) GetScheme() *runtime.Scheme { return m.Scheme }

// GetLogger implements manager.Manager.
func (m *Manager) GetLogger() logr.Logger { return logr.FromSlogHandler(slog.DiscardHandler) }

// GetConfig implements manager.Manager.
func (m *Manager) GetConfig() *rest.Config { return &rest.Config{Host: "https://192.0.2.1:6443"} }

// Elected implements manager.Manager.
func (m *Manager) Elected() <-chan struct{} { return nil }

// GetControllerOptions implements manager.Manager.
func (m *Manager) GetControllerOptions() config.Controller {
	return config.Controller{SkipNameValidation: new(true)}
}

// Add implements manager.Manager.
func (m *Manager) Add(r manager.Runnable) error {
	m.Added = append(m.Added, r)
	return nil
}

// AddHealthzCheck implements manager.Manager.
func (m *Manager) AddHealthzCheck(name string, check healthz.Checker) error {
	m.Healthz[name] = check
	return nil
}

// AddReadyzCheck implements manager.Manager.
func (m *Manager) AddReadyzCheck(name string, check healthz.Checker) error {
	m.Readyz[name] = check
	return nil
}
