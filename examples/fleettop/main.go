// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Fleettop shows the clusters of a fleet as a table, worst first: phase and
// reason, staleness, informers, objects, bytes, and events per second.
//
//	go run ./examples/fleettop -for 20s
//	go run ./examples/fleettop -kubeconfig FILE -context A -context B -kind apps/v1/Deployment
//
// On a terminal it redraws the table every second; elsewhere it prints one every
// few seconds. With -kubeconfig it shows your own clusters, in which it changes
// nothing. Without, it starts four control planes by itself, changes objects in
// them, stops one, and starts that again. Then it checks what it has shown, and
// exits with status 1 if something was not right. With -embedded, the control
// planes are API servers in memory: nothing is built, and the same is shown. What
// that cannot show is printed.
//
// With -owners it shows which replica of an operator has which clusters, since
// when, and why none has them, by the Leases in the hub, which it only lists;
// -replicas, -weight and -standbys print what such a change would move:
//
//	go run ./examples/fleettop -owners
//	go run ./examples/fleettop -owners -kubeconfig FILE -context HUB -namespace operators -group stamper
//	go run ./examples/fleettop -owners -kubeconfig FILE -context HUB -namespace operators -group stamper -replicas 4
//
// The files monitor.go, meter.go, row.go, owners.go and dryrun.go are what your
// own program needs; table.go, frame.go and display.go draw; the rest is the
// demonstration.
package main

import (
	"context"
	"errors"
	"flag"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/examples/internal/fleet"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// demoLength is how long the demonstration takes without -for.
const demoLength = 30 * time.Second

// settings are the values of the command line.
type settings struct {
	contexts fleet.Contexts
	local    fleet.Local
	kinds    []schema.GroupVersionKind
	length   time.Duration
	plain    bool

	owners           bool
	namespace, group string
	change           whatIf
}

func main() { program().Main() }

func program() story.Program {
	var s settings
	return story.Program{
		Name:  "fleettop",
		Flags: s.flags,
		Check: s.check,
		Run: func(ctx context.Context, out *story.Printer, log logr.Logger) error {
			show := newDisplay(out, s.plain)
			switch {
			case s.owners && s.contexts.Given():
				return s.showOwners(ctx, out, show)
			case s.owners:
				return shareLocal(ctx, s.local, out, log)
			case s.contexts.Given():
				return s.showExisting(ctx, show, log)
			}
			return showLocal(ctx, s.local, out, show, s.length, log)
		},
	}
}

func (s *settings) flags(flags *flag.FlagSet) {
	s.contexts.Flags(flags, "the kubeconfig `file` of your own clusters, which are only read",
		"a `context` of the file; can be repeated")
	s.local.Flags(flags)
	flags.Func("kind", "with -kubeconfig: a `kind` to watch, such as v1/Pod or apps/v1/Deployment; can be repeated "+
		"(default v1/Pod, apps/v1/Deployment and v1/ConfigMap)", func(text string) error {
		kind, err := parseKind(text)
		if err == nil && slices.Contains(s.kinds, kind) {
			err = errors.New("given twice")
		}
		s.kinds = append(s.kinds, kind)
		return err
	})
	flags.DurationVar(&s.length, "for", 0,
		"how long to show the fleet (default: your own clusters until an interrupt, others "+demoLength.String()+")")
	flags.BoolVar(&s.plain, "plain", false, "print tables one below the other, on a terminal, too")
	flags.BoolVar(&s.owners, "owners", false,
		"show which replica of an operator has which clusters, by the Leases in the hub, which is the -context")
	flags.StringVar(&s.namespace, "namespace", "", "with -owners and -kubeconfig: the `namespace` of the Leases")
	flags.StringVar(&s.group, "group", "", "with -owners and -kubeconfig: the `name` of the group, as in Options.Name")
	flags.IntVar(&s.change.replicas, "replicas", 0, "with -group: print what would move with this `number` of replicas")
	flags.IntVar(&s.change.standbys, "standbys", -1,
		"with -group: print what would move with this `number` of standbys")
	flags.Func("weight", "with -group: print what would move with another weight, `REPLICA=PERCENT`; can be repeated",
		s.change.addWeight)
}

func (s *settings) check() error {
	if s.length < 0 {
		return errors.New("-for is negative")
	}
	if s.local.Embedded && s.contexts.Given() {
		return errors.New("-embedded cannot be combined with -kubeconfig")
	}
	if len(s.kinds) > 0 && (!s.contexts.Given() || s.owners) {
		return errors.New("-kind needs -kubeconfig, and has no meaning with -owners")
	}
	if err := s.contexts.Check(); err != nil {
		return err
	}
	return s.checkOwners()
}

func (s *settings) checkOwners() error {
	named := s.owners && s.contexts.Given()
	switch {
	case named != (s.namespace != "") || named != (s.group != ""):
		return errors.New("-namespace and -group need -owners and -kubeconfig, which needs them")
	case named && len(s.contexts.Names) != 1:
		return errors.New("-owners needs one -context, that of the hub")
	case s.change.given() && !named:
		return errors.New("-replicas, -standbys and -weight need -owners and -group")
	case s.change.replicas < 0:
		return errors.New("-replicas is negative")
	}
	return nil
}

// parseKind reads version/kind or group/version/kind.
func parseKind(text string) (schema.GroupVersionKind, error) {
	parts := strings.Split(text, "/")
	if n := len(parts); n < 2 || n > 3 || slices.Contains(parts, "") {
		return schema.GroupVersionKind{}, errors.New("not version/kind or group/version/kind")
	}
	if len(parts) == 2 {
		parts = slices.Insert(parts, 0, "") // the core group
	}
	return schema.GroupVersionKind{Group: parts[0], Version: parts[1], Kind: parts[2]}, nil
}

// defaultKinds are the kinds that are watched without -kind.
func defaultKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Version: "v1", Kind: "ConfigMap"},
	}
}
