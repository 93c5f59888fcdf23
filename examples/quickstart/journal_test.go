// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

var north = client.ObjectKey{Namespace: "fleet", Name: "north"}

func seen(name, resourceVersion string) observation {
	r := request{cluster: north, kind: widgetKind, object: client.ObjectKey{Namespace: demoNamespace, Name: name}}
	if resourceVersion == "" {
		return observation{request: r}
	}
	u := widget(name, 1)
	u.SetUID("uid")
	u.SetResourceVersion(resourceVersion)
	return observation{request: r, object: u}
}

func TestJournalTellsWhatIsNew(t *testing.T) {
	var text bytes.Buffer
	j := newJournal(story.NewPrinter(&text), true)
	for _, step := range []struct {
		report observation
		tells  string
	}{
		{observation{request: request{cluster: north}, status: status.Cluster{Phase: "Ready"}}, "is Ready"},
		{observation{request: request{cluster: north}, status: status.Cluster{Phase: "Ready"}}, ""},
		{seen("a", "1"), `Widget demo/a arrived: {"size":1}`},
		{seen("a", "2"), `Widget demo/a changed: {"size":1}`},
		{seen("a", "2"), "Widget demo/a did not change"},
		{seen("a", ""), "Widget demo/a is gone"},
		{seen("a", ""), "Widget demo/a did not change"},
	} {
		news := j.news()
		text.Reset()
		j.report(step.report)
		require.Contains(t, text.String(), step.tells)
		require.Equal(t, step.tells == "", text.Len() == 0, text.String())
		require.NotEqual(t, news, j.news(), "nobody is woken")
	}
	objects, reports, unchanged := j.counts(north)
	require.Equal(t, []int{0, 5, 2}, []int{objects, reports, unchanged})
}

func TestJournalCountsManyObjectsAndTellsOfSome(t *testing.T) {
	var text bytes.Buffer
	j := newJournal(story.NewPrinter(&text), true)
	for i := range 5 * manyObjects {
		j.report(seen(fmt.Sprint(i), "1"))
	}
	require.Equal(t, manyObjects+1, strings.Count(text.String(), "\n"))
	require.Contains(t, text.String(), "... and more")
	objects, _, _ := j.counts(north)
	require.Equal(t, 5*manyObjects, objects)
}

func TestJournalKeepsContentsToItself(t *testing.T) {
	var text bytes.Buffer
	j := newJournal(story.NewPrinter(&text), false)
	j.report(seen("a", "1"))
	j.report(seen("a", "2"))
	require.Contains(t, text.String(), "Widget demo/a changed")
	require.NotContains(t, text.String(), "size")
}

func TestTableIsAligned(t *testing.T) {
	var text bytes.Buffer
	out := story.NewPrinter(&text)
	j := newJournal(out, false)
	j.report(seen("a", "1"))
	text.Reset()
	out.Table(j.table([]status.Cluster{
		{Cluster: client.ObjectKey{Name: "remote-with-a-long-name"}, Phase: status.PhaseDisconnected},
		{Cluster: north, Phase: status.PhaseReady, Informers: 2, Objects: 1200},
	}, time.Now().Add(1500*time.Millisecond)))
	require.Equal(t, `
         CLUSTER                  PHASE         INFORMERS  OBJECTS  LAST EVENT
         remote-with-a-long-name  Disconnected  0          0        none
         fleet/north              Ready         2          1200     Widget demo/a arrived, 1.5s ago
`, "\n"+text.String())
}

func TestContentIsShort(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	require.Equal(t, "(no content)", content(u))
	u.Object["data"] = map[string]any{"k": strings.Repeat("x", 100)}
	require.Equal(t, "(108 bytes)", content(u))
}

func TestTheOperatorNeedsPublicPackagesOnly(t *testing.T) {
	for _, name := range []string{"operator.go", "reconciler.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		require.NotEmpty(t, file.Imports)
		for _, i := range file.Imports {
			require.NotContains(t, i.Path.Value, "/internal/", name)
		}
	}
}
