// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// tale is the demonstration on clusters that run on this machine.
type tale struct {
	story.Story

	east, west fleet.Cluster
	child      *story.Child
	before     watches // those that were open before the program started
}

// watches counts WATCH requests by cluster and resource.
type watches struct{ eastConfigMaps, eastSecrets, westConfigMaps int }

func (w watches) String() string {
	return fmt.Sprintf("WATCH requests: %d of ConfigMaps and %d of Secrets in east, %d of ConfigMaps in west",
		w.eastConfigMaps, w.eastSecrets, w.westConfigMaps)
}

// count returns the watches that a function counts.
func (t *tale) count(of func(fleet.Cluster, string) (int, error)) (watches, error) {
	eastConfigMaps, err1 := of(t.east, "configmaps")
	eastSecrets, err2 := of(t.east, "secrets")
	westConfigMaps, err3 := of(t.west, "configmaps")
	return watches{
		eastConfigMaps: eastConfigMaps,
		eastSecrets:    eastSecrets,
		westConfigMaps: westConfigMaps,
	}, errors.Join(err1, err2, err3)
}

// entry returns an entry of a configuration.
func entry(name, cluster, kind, labels string) string {
	return fmt.Sprintf("%s:\n  cluster: %s\n  apiVersion: v1\n  kind: %s\n  namespace: %s\n  labelSelector: %s\n",
		name, cluster, kind, demoNamespace, labels)
}

// Entries of the story.
var (
	paint  = entry("paint", "east", "ConfigMap", "team=paint")
	road   = entry("road", "west", "ConfigMap", "team=road")
	keys   = entry("keys", "east", "Secret", "team!=paint")
	colors = entry("colors", "east", "ConfigMap", "team=paint") // paint, by another name
	wider  = entry("colors", "east", "ConfigMap", "team in (paint, road)")
)

// tell starts two clusters and this program as a second process, and shows what
// configurations do.
func tell(ctx context.Context, local fleet.Local, out *story.Printer) (err error) {
	f, err := local.Start(ctx, out, "Two clusters", "east", "west")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	t := &tale{
		Story: story.Story{Printer: out},
		east:  f.Hub,
		west:  f.Remotes[0],
	}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	kubeconfig, err := f.WriteKubeconfig()
	if err != nil {
		return err
	}
	out.Say("both have objects now; one kubeconfig file has a context for each")
	if t.child, err = story.StartChild(ctx, out, "-kubeconfig", kubeconfig, "-entries", "-"); err != nil {
		return err
	}
	defer t.child.Kill()
	t.Changed = t.child.News

	return t.Tell(ctx,
		story.Chapter{Title: "A second process starts, and receives its first configuration", Tell: t.begin},
		story.Chapter{Title: "An entry is added", Tell: t.add},
		story.Chapter{Title: "An entry gets another name", Tell: t.rename},
		story.Chapter{Title: "An entry selects more", Tell: t.widen},
		story.Chapter{Title: "A configuration with a mistake", Tell: t.mistake},
		story.Chapter{Title: "The last entry of a cluster goes", Tell: t.leave},
		story.Chapter{Title: "SIGTERM", Tell: t.end},
	)
}

// prepare creates the objects, and counts the watches that are open.
func (t *tale) prepare(ctx context.Context) (err error) {
	for _, c := range []fleet.Cluster{t.east, t.west} {
		if err := furnish(ctx, c); err != nil {
			return err
		}
	}
	t.before, err = t.open(ctx)
	return err
}

func (t *tale) begin(ctx context.Context) error {
	return t.configure(ctx, paint+road, watches{eastConfigMaps: 1, westConfigMaps: 1},
		"configuration: +paint, +road, 0 unchanged",
		"paint: ConfigMap demo/red in east Added", "paint: ConfigMap demo/blue in east Added",
		"road: ConfigMap demo/speed in west Added", "paint is Synced", "road is Synced")
}

func (t *tale) add(ctx context.Context) error {
	return t.configure(ctx, paint+road+keys, watches{eastConfigMaps: 1, eastSecrets: 1, westConfigMaps: 1},
		"configuration: +keys, 2 unchanged", "keys: Secret demo/key in east Added", "keys is Synced")
}

func (t *tale) rename(ctx context.Context) error {
	return t.configure(ctx, colors+road+keys, watches{eastConfigMaps: 1, eastSecrets: 1, westConfigMaps: 1},
		"configuration: +colors, -paint, 2 unchanged",
		"paint: ConfigMap demo/red in east Deleted (it left the set)", "colors: ConfigMap demo/red in east Added",
		"paint: ConfigMap demo/blue in east Deleted (it left the set)", "colors: ConfigMap demo/blue in east Added",
		"colors is Synced")
}

func (t *tale) widen(ctx context.Context) error {
	n := t.child.Lines()
	err := t.configure(ctx, wider+road+keys, watches{eastConfigMaps: 2, eastSecrets: 1, westConfigMaps: 1},
		"configuration: ~colors, 2 unchanged", "colors: ConfigMap demo/speed in east Added", "colors is Synced")
	if err != nil {
		return err
	}
	text := strings.Join(t.child.Since(n), "\n")
	return t.Expect(!strings.Contains(text, "demo/red") && !strings.Contains(text, "demo/blue"),
		"what both selections have is not delivered again", "one event")
}

func (t *tale) mistake(ctx context.Context) error {
	err := t.configure(ctx, strings.Replace(wider, "kind:", "kinds:", 1),
		watches{eastConfigMaps: 2, eastSecrets: 1, westConfigMaps: 1},
		`configuration refused: line 4: entry "colors": kinds: unknown field`)
	if err != nil {
		return err
	}
	n := t.child.Lines()
	if err := t.east.Client().Create(ctx, configMap("green", "paint")); err != nil {
		return err
	}
	return t.lines(ctx, n, "colors: ConfigMap demo/green in east Added")
}

func (t *tale) leave(ctx context.Context) error {
	err := t.configure(ctx, wider+keys, watches{eastConfigMaps: 2, eastSecrets: 1, westConfigMaps: 1},
		"configuration: -road, 2 unchanged", "road: ConfigMap demo/speed in west Deleted (it left the set)")
	if err != nil {
		return err
	}
	want := t.before
	want.eastConfigMaps++
	want.eastSecrets++
	return t.awaitOpen(ctx, want, "only the watches of two entries are open, both in east")
}

func (t *tale) end(ctx context.Context) error {
	status, took, err := t.child.Terminate()
	if err != nil {
		return err
	}
	if err := t.Expect(status == 0, "the process ended well",
		fmt.Sprintf("status %d, %s after the signal", status, story.Brief(took))); err != nil {
		return err
	}
	return t.awaitOpen(ctx, t.before, "no watch is left")
}

// configure sends a configuration, waits for lines of the process, and checks
// how many watches it has requested since its start.
func (t *tale) configure(ctx context.Context, text string, want watches, lines ...string) error {
	n := t.child.Lines()
	if err := t.child.Send(text + "---\n"); err != nil {
		return err
	}
	if err := t.lines(ctx, n, lines...); err != nil {
		return err
	}
	got := watches{}
	_, err := t.Await(ctx, story.Patience, want.String(), func() (err error) {
		if got, err = t.count(asked); err == nil && got != want {
			err = errors.New(got.String())
		}
		return err
	})
	if err == nil {
		t.OK("since the start, %s", got)
	}
	return err
}

// lines waits for lines of the process after the first n.
func (t *tale) lines(ctx context.Context, n int, parts ...string) error {
	_, err := t.Await(ctx, story.Patience, strings.Join(parts, "; "), func() error {
		return t.child.Missing(n, parts...)
	})
	if err == nil {
		t.Met++
	}
	return err
}

// open counts the watches that the API servers are serving.
func (t *tale) open(ctx context.Context) (watches, error) {
	return t.count(func(c fleet.Cluster, resource string) (int, error) { return c.OpenWatches(ctx, resource) })
}

// awaitOpen waits until the API servers serve a number of watches.
func (t *tale) awaitOpen(ctx context.Context, want watches, expected string) error {
	took, err := t.Await(ctx, story.Patience, expected, func() error {
		got, err := t.open(ctx)
		if err == nil && got != want {
			err = fmt.Errorf("open %s", got)
		}
		return err
	})
	if err == nil {
		t.OK("%s, as the API servers count them (waited %s)", expected, story.Brief(took))
	}
	return err
}
