// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetcache_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/fleetcache/fleetcache/clustercache/persist"
)

// TestGuidesAreCompiled compares every block of Go in the guides with
// examples/guide.
func TestGuidesAreCompiled(t *testing.T) {
	var code strings.Builder
	require.NoError(t, filepath.WalkDir("examples/guide", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" {
			code.WriteString(read(t, path))
		}
		return err
	}))
	blocks := 0
	for _, page := range []string{"docs/watching.md", "docs/reading.md", "docs/reaching.md", "docs/persist.md"} {
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
			blocks++
			require.Contains(t, code.String(), block[1], page)
		}
	}
	require.Greater(t, blocks, 12)
}

// TestPersistManifestIsValid: the manifest of the guide has no field that the
// API does not have, mounts what it claims, and has room for the file.
func TestPersistManifestIsValid(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(read(t, "docs/persist.md"))
	require.NotEmpty(t, block)
	set := &appsv1.StatefulSet{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(block[1]), set))
	container, claim := set.Spec.Template.Spec.Containers[0], set.Spec.VolumeClaimTemplates[0]
	require.Equal(t, claim.Name, container.VolumeMounts[0].Name)
	require.Contains(t, container.Args[0], "="+container.VolumeMounts[0].MountPath+"/")
	require.Equal(t, set.Spec.Selector.MatchLabels, set.Spec.Template.Labels)
	require.Greater(t, claim.Spec.Resources.Requests.Storage().Value(), int64(2*persist.DefaultMaxBytes))
}
