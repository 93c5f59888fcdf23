// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// note records what is done.
func (m *wayBack) note(format string, args ...any) {
	m.history = append(m.history, fmt.Sprint(time.Since(m.began), " ", fmt.Sprintf(format, args...)))
}

func pick[T any](m *wayBack, of ...T) T { return of[m.rnd.IntN(len(of))] }

func (m *wayBack) cluster() client.ObjectKey { return fleettest.Key(pick(m, clusters...)) }

func (m *wayBack) anyServer() *clustercachetest.Cluster { return m.server(pick(m, servers...)) }

// step does something random, and waits for some time.
func (m *wayBack) step() {
	pick(m, m.respec, m.respec, m.respec, m.end, m.object, m.object, m.object, m.object, m.object,
		m.fault, m.fault, m.reach, m.kind, m.member, m.relabel, m.rewrite, m.doubt)()
	if m.rnd.IntN(3) > 0 {
		time.Sleep(time.Duration(m.rnd.IntN(3000)) * time.Millisecond)
	}
	if m.rnd.IntN(8) == 0 {
		time.Sleep(time.Duration(m.rnd.IntN(300)) * time.Second)
	}
}

// respec changes what an owner needs, and creates it if necessary.
func (m *wayBack) respec() {
	owner := pick(m, owners...)
	var spec []need
	for range m.rnd.IntN(3) + 1 {
		spec = append(spec, m.need())
	}
	m.note("%s needs %v", owner, spec)
	m.mu.Lock()
	if m.objects[owner.Name] == absent {
		m.objects[owner.Name] = exists
	}
	m.specs[owner] = spec
	m.mu.Unlock()
	m.queue.Add(owner)
}

// need returns a wide or narrow target, in one cluster or several.
func (m *wayBack) need() need {
	kind := pick(m, fleettest.ConfigMap, fleettest.ConfigMap, nodes, gadgets)
	n := need{
		Target: clustercache.Target{Cluster: m.cluster(), Kind: clustercache.Kind(kind)},
		form:   pick(m, "list", "list metadata"),
	}
	if m.rnd.IntN(4) == 0 {
		n.Cluster, n.ClusterSelector = client.ObjectKey{}, pick(m, labels.Everything(), prod.AsSelector())
	}
	if m.rnd.IntN(2) == 0 {
		n.Options = append(n.Options, client.InNamespace(pick(m, "default", "other")))
	}
	switch m.rnd.IntN(4) {
	case 0:
		n.Options = append(n.Options, client.MatchingLabels{"color": pick(m, "red", "green")})
	case 1:
		n.name = pick(m, "x", "y", "z")
		n.Options = append(n.Options, client.MatchingFields{"metadata.name": n.name})
		if len(n.Options) == 2 || kind == nodes {
			n.form = pick(m, "get", "list")
		}
	}
	return n
}

// end deletes an owner: with finalizers, without, or unheard by its
// controllers.
func (m *wayBack) end() {
	name, how := pick(m, owners...).Name, pick(m, "waits", "waits", "is called", "is not called")
	m.mu.Lock()
	was := m.objects[name]
	switch {
	case was == absent:
	case how == "waits":
		m.objects[name] = deleting
	case was == exists:
		m.objects[name] = absent
	}
	m.mu.Unlock()

	m.note("%s %s is deleted, and %s", was, name, how)
	for _, owner := range owners {
		if owner.Name == name && how != "is not called" {
			m.queue.Add(owner)
		}
	}
}

// doubt changes how the hub answers whether owners exist.
func (m *wayBack) doubt() { m.doubtAs(pick(m, "fails", "lacks one", "lacks two")) }

func (m *wayBack) doubtAs(hub string) {
	m.note("the hub %s", hub)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hub = hub
}

// object creates, changes or deletes one object.
func (m *wayBack) object() { m.objectIn(m.anyServer()) }

func (m *wayBack) objectIn(c *clustercachetest.Cluster) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(pick(m, fleettest.ConfigMap, fleettest.ConfigMap, nodes, gadgets))
	o.SetName(pick(m, "x", "y", "z"))
	if o.GetKind() != "Node" {
		o.SetNamespace(pick(m, "default", "default", "other"))
	}
	o.SetLabels(map[string]string{"color": pick(m, "red", "green", "none")})
	var err error
	verb := pick(m, "delete", "write", "write", "write and delete")
	if strings.Contains(verb, "write") {
		m.added++
		o.SetAnnotations(map[string]string{"n": fmt.Sprint(m.added)})
		if err = c.Client().Create(m.t.Context(), o.DeepCopy()); err != nil {
			err = c.Client().Update(m.t.Context(), o)
		}
	}
	if strings.Contains(verb, "delete") {
		if strings.Contains(verb, "write") {
			time.Sleep(time.Duration(m.rnd.IntN(1000)) * time.Millisecond)
		}
		err = c.Client().Delete(m.t.Context(), o)
	}
	m.note("%s %s %s %s/%s: %v", verb, c.Key().Name, o.GetKind(), o.GetNamespace(), o.GetName(), err)
}

// heal ends all that is wrong.
func (m *wayBack) heal() {
	for _, what := range slices.Sorted(maps.Keys(m.heals)) {
		m.toggle(what, nil)
	}
}

// toggle begins a fault, or ends it.
func (m *wayBack) toggle(what string, begin func() (heal func())) {
	if heal := m.heals[what]; heal != nil {
		m.note("heal %s", what)
		delete(m.heals, what)
		heal()
		return
	}
	m.note("%s", what)
	m.heals[what] = begin()
}

// fault lets requests for a resource fail.
func (m *wayBack) fault() {
	c := m.anyServer()
	resource := pick(m, "configmaps", "nodes", "gadgets")
	code := pick(m, 403, 503, 503)
	verbs := pick(m, []string{"list", "watch"}, []string{"list", "watch", "get"}, []string{"watch"})
	m.toggle(fmt.Sprint(c.Key().Name, " answers ", verbs, " of ", resource, " with ", code), func() func() {
		return c.Fail(clustercachetest.Status(code),
			clustercachetest.Resource(resource), clustercachetest.Verb(verbs...))
	})
}

// reach breaks the network or the credentials of a server.
func (m *wayBack) reach() {
	c := m.anyServer()
	switch fault := pick(m, "is down", "hangs", "knows no token", "is silent", "resets"); fault {
	case "is down":
		m.toggle(c.Key().Name+" "+fault, func() func() { c.Disconnect(); return c.Connect })
	case "hangs":
		m.toggle(c.Key().Name+" "+fault, func() func() { c.Hang(); return c.Connect })
	case "knows no token":
		m.toggle(c.Key().Name+" "+fault, func() func() { c.Revoke(); return m.rotate(c) })
	case "is silent":
		m.toggle(c.Key().Name+" "+fault, func() func() {
			c.SetStale(true)
			return func() { c.SetStale(false) }
		})
	default:
		m.note("%s %s", c.Key().Name, fault)
		c.Reset()
	}
}

// rotate issues another token, which every cluster may have.
func (m *wayBack) rotate(c *clustercachetest.Cluster) func() {
	return func() {
		c.Rotate()
		for _, name := range clusters {
			m.places.Changed(fleettest.Key(name))
		}
	}
}

// kind installs the kind Gadget without an object, or removes it.
func (m *wayBack) kind() {
	c, crd := m.anyServer(), gadgetDefinition()
	if err := c.Client().Create(m.t.Context(), crd); err != nil {
		m.note("%s serves Gadget no more: %v", c.Key().Name, c.Client().Delete(m.t.Context(), crd))
		return
	}
	m.note("%s serves Gadget", c.Key().Name)
}

// gadgetDefinition returns the CustomResourceDefinition of the kind Gadget.
func gadgetDefinition() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "gadgets." + gadgets.Group},
		"spec": map[string]any{
			"group": gadgets.Group,
			"names": map[string]any{
				"kind":     gadgets.Kind,
				"listKind": "GadgetList",
				"plural":   "gadgets",
				"singular": "gadget",
			},
			"scope": "Namespaced",
			"versions": []any{map[string]any{
				"name":    gadgets.Version,
				"served":  true,
				"storage": true,
				"schema":  map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
}

// member removes a cluster, adds it, or moves it to another server, which may
// be that of the other cluster.
func (m *wayBack) member() {
	key := m.cluster()
	if _, err := m.places.Resolve(m.t.Context(), key); err == nil && m.rnd.IntN(2) == 0 {
		m.note("remove %s", key.Name)
		m.places.Remove(key)
		delete(m.at, key.Name)
		return
	}
	at := m.anyServer()
	m.note("%s is at %s", key.Name, at.Key().Name)
	m.move(key.Name, at)
}

// relabel makes a cluster enter or leave selections.
func (m *wayBack) relabel() {
	key, to := m.cluster(), pick(m, prod, labels.Set{}, nil)
	m.note("%s has labels %v", key.Name, to)
	m.places.mu.Lock()
	m.places.labels[key.Name] = to
	m.places.mu.Unlock()
	m.places.Changed(key)
}

// rewrite changes the history of a server.
func (m *wayBack) rewrite() {
	c := m.anyServer()
	what := pick(m, "is compacted", "is another cluster", "is rolled back")
	switch what {
	case "is compacted":
		c.Compact()
		c.Reset()
	case "is another cluster":
		c.NewEpoch(fleettest.ColoredConfigMap("x", "red"))
	default:
		before := c.Snapshot()
		m.objectIn(c)
		m.objectIn(c)
		c.Rollback(before)
	}
	m.note("%s %s", c.Key().Name, what)
}
