// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// tale is the demonstration on clusters that run on this machine.
type tale struct {
	story.Story

	east, west fleet.Cluster
	kubeconfig string
	child      *story.Child
}

// tell starts two clusters and this program as a second process, and shows what
// the operator does.
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
	if t.kubeconfig, err = f.WriteKubeconfig(); err != nil {
		return err
	}
	defer func() {
		if t.child != nil {
			t.child.Kill()
		}
	}()
	return t.Tell(ctx,
		story.Chapter{Title: "The operator starts as a second process", Tell: t.begin},
		story.Chapter{Title: "A page that a site owns is deleted", Tell: t.repair},
		story.Chapter{Title: "The theme of a namespace changes ten times", Tell: t.burst},
		story.Chapter{Title: "One site is triggered, and then all", Tell: t.trigger},
		story.Chapter{Title: "SIGTERM, with a reconcile under way", Tell: t.finish},
		story.Chapter{Title: "SIGTERM, with a reconcile that takes too long", Tell: t.cancel},
	)
}

// prepare creates the objects.
func (t *tale) prepare(ctx context.Context) error {
	for _, c := range []fleet.Cluster{t.east, t.west} {
		if err := c.InstallCRDs(ctx, testenv.SimpleCRD(siteKind.Group, siteKind.Kind)); err != nil {
			return err
		}
		err := fleet.Create(ctx, c.Client(), demoNamespace, newTheme("red"), newSite("blog", ""), newSite("shop", ""))
		if err != nil {
			return err
		}
	}
	return nil
}

// start starts the operator, and waits until all sites are done.
func (t *tale) start(ctx context.Context) (err error) {
	t.child, err = story.StartChild(ctx, t.Printer, "-kubeconfig", t.kubeconfig, "-context", "east", "-context", "west")
	if err != nil {
		return err
	}
	t.Changed = t.child.News
	return t.lines(ctx, 0, "the sites of both clusters are reconciled", everySite...)
}

func (t *tale) begin(ctx context.Context) error {
	if err := t.start(ctx); err != nil {
		return err
	}
	return t.pages(ctx, "red")
}

// everySite are the lines that end the reconciles of all sites.
var everySite = []string{
	"east: demo/blog is done", "east: demo/shop is done", "west: demo/blog is done", "west: demo/shop is done",
}

func (t *tale) repair(ctx context.Context) error {
	n := t.child.Lines()
	page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: demoNamespace, Name: "blog-page"}}
	if err := t.west.Client().Delete(ctx, page); err != nil {
		return err
	}
	if err := t.lines(ctx, n, "its owner is reconciled", "west: demo/blog is done"); err != nil {
		return err
	}
	return t.pages(ctx, "red")
}

func (t *tale) burst(ctx context.Context) error {
	n := t.child.Lines()
	for i := range 10 {
		for _, c := range []fleet.Cluster{t.east, t.west} {
			if err := c.Client().Update(ctx, newTheme(fmt.Sprintf("blue-%d", i))); err != nil {
				return err
			}
		}
	}
	if err := t.lines(ctx, n, "the sites of the namespace are reconciled", everySite...); err != nil {
		return err
	}
	if err := t.pages(ctx, "blue-9"); err != nil {
		return err
	}
	// The write of a page is an event of what the site owns, also that of the page
	// that was deleted before. On a slow machine the burst may take longer than
	// the debounce.
	begun := count(t.child.Since(n), "reconciling")
	return t.Expect(begun <= 5*len(everySite), "ten changes did not lead to ten reconciles of each site",
		fmt.Sprintf("%d in all, some of them because of the pages that were written", begun))
}

func (t *tale) trigger(ctx context.Context) error {
	time.Sleep(2 * debounce) // nothing else is to be expected
	n := t.child.Lines()
	if err := t.child.Send("west demo shop\n"); err != nil {
		return err
	}
	if err := t.lines(ctx, n, "the site is reconciled", "west: demo/shop is done"); err != nil {
		return err
	}
	if err := t.Expect(count(t.child.Since(n), "reconciling") == 1, "no other site is", "one reconcile"); err != nil {
		return err
	}
	n = t.child.Lines()
	if err := t.child.Send("all\n"); err != nil {
		return err
	}
	return t.lines(ctx, n, "all sites are reconciled", everySite...)
}

func (t *tale) finish(ctx context.Context) error {
	if err := t.slow(ctx, "slow", "2s"); err != nil {
		return err
	}
	n := t.child.Lines()
	if err := t.end("the process waited for it"); err != nil {
		return err
	}
	return t.Expect(t.child.Missing(n, "east: demo/slow is done") == nil && count(t.child.Since(n), "reconciling") == 0,
		"the reconcile finished, and none began", strings.Join(t.child.Since(n), "; "))
}

func (t *tale) cancel(ctx context.Context) error {
	if err := t.east.Client().Delete(ctx, newSite("slow", "")); err != nil {
		return err
	}
	if err := t.start(ctx); err != nil {
		return err
	}
	if err := t.slow(ctx, "stuck", "1h"); err != nil {
		return err
	}
	n := t.child.Lines()
	if err := t.end("the process canceled it after a bound"); err != nil {
		return err
	}
	return t.Expect(t.child.Missing(n, "east: demo/stuck ended with: context canceled") == nil,
		"the reconcile was canceled", "its context ended")
}

// slow creates a site whose reconcile takes a time, and waits until it begins.
func (t *tale) slow(ctx context.Context, name, takes string) error {
	n := t.child.Lines()
	if err := t.east.Client().Create(ctx, newSite(name, takes)); err != nil {
		return err
	}
	return t.lines(ctx, n, "a reconcile that takes "+takes+" begins", "east: reconciling demo/"+name)
}

// end sends SIGTERM.
func (t *tale) end(expected string) error {
	status, took, err := t.child.Terminate()
	if err != nil {
		return err
	}
	return t.Expect(status == 0, expected, fmt.Sprintf("status %d, %s after SIGTERM", status, story.Brief(took)))
}

// lines waits for lines of the process after the first n.
func (t *tale) lines(ctx context.Context, n int, expected string, parts ...string) error {
	took, err := t.Await(ctx, story.Patience, expected, func() error { return t.child.Missing(n, parts...) })
	if err == nil {
		t.OK("%s (waited %s)", expected, story.Brief(took))
	}
	return err
}

// pages waits until the pages of all sites have a color.
func (t *tale) pages(ctx context.Context, color string) error {
	_, err := t.Await(ctx, story.Patience, "all pages are "+color, func() error {
		for _, c := range []fleet.Cluster{t.east, t.west} {
			for _, name := range []string{"blog-page", "shop-page"} {
				page := &corev1.ConfigMap{}
				err := c.Client().Get(ctx, client.ObjectKey{Namespace: demoNamespace, Name: name}, page)
				if err == nil && page.Data["color"] != color {
					err = fmt.Errorf("%s of %s is %s", name, c.Name(), page.Data["color"])
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil {
		t.OK("all pages are %s", color)
	}
	return err
}

// count returns how many lines contain part.
func count(lines []string, part string) int {
	return strings.Count(strings.Join(lines, "\n"), part)
}
