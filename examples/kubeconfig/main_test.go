// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// logged has the lines of controller-runtime's logger, which can be set once.
var logged = make(chan string, 1000)

func TestMain(m *testing.M) {
	ctrl.SetLogger(funcr.New(func(_, line string) {
		select {
		case logged <- line:
		default:
		}
	}, funcr.Options{}))
	testenv.Main(m, testenv.VerifyNoLeaks())
}

// TestMistypedPathIsLoggedAtOnce: the program sets controller-runtime's logger,
// as every operator does, and no other.
func TestMistypedPathIsLoggedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfg")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, func(events.Object) {}, path) }()

	for line := range logged {
		if strings.Contains(line, "Clusters cannot be listed") {
			require.Contains(t, line, path)
			require.Contains(t, line, "file does not exist")
			break
		}
	}
	cancel()
	require.NoError(t, <-ended)
}

func TestObjectsOfAllContextsArePrinted(t *testing.T) {
	clusters := testenv.Start(t, 2, testenv.WithNames("east", "west"))
	f := fleet.Of(clusters...)
	defer func() { require.NoError(t, f.Stop()) }()
	file, err := f.WriteKubeconfig()
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	shown := make(chan string, 1000)
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, func(e events.Object) {
			shown <- fmt.Sprint(e.Type, " ", e.Object(), " in ", e.Cluster.Name)
		}, file)
	}()
	await := func(line string) {
		for <-shown != line {
			continue
		}
	}
	for _, c := range clusters {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "greeting"}}
		require.NoError(t, c.Client().Create(t.Context(), configMap))
		await("Added ConfigMap default/greeting in " + c.Name())
		require.NoError(t, c.Client().Delete(t.Context(), configMap))
		await("Deleted ConfigMap default/greeting in " + c.Name())
	}

	cancel()
	require.NoError(t, <-ended)
}
