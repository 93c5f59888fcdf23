// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/fleetcache/fleetcache/clustercache/clusterapi"
)

// TestFunctionThatGetsNothingNamesWhatItNeeds: a nil dereference would name
// nothing.
func TestFunctionThatGetsNothingNamesWhatItNeeds(t *testing.T) {
	_, err := clusterapi.New(nil, clusterapi.Options{})
	require.EqualError(t, err, "clustercache: option cc: required")
	_, err = clusterapi.SetupWithManager(t.Context(), nil, capi.Options{}, controller.Options{})
	require.EqualError(t, err, "clustercache: option mgr: required")
}
