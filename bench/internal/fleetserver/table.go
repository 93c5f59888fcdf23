// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetserver

import (
	"cmp"
	"slices"
	"sort"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/bench/internal/objects"
)

// table is what a cluster keeps of one kind: not the objects, but how often
// each has changed. The cluster's lock protects its fields, apart from kind and
// first, which do not change.
type table struct {
	cluster *cluster
	number  int // in Fleet.kinds
	kind    objects.Kind
	first   int64 // version of object number 0
	changed map[int]revision
	log     []change
	wake    chan struct{} // closed at a change
}

// revision is how often an object has changed, and its version since then.
type revision struct {
	number int
	rv     int64
}

// change is a change of an object.
type change struct {
	object int
	revision
}

func newTable(c *cluster, number int, k objects.Kind) *table {
	return &table{
		cluster: c,
		number:  number,
		kind:    k,
		first:   firstVersion + 1 + int64(number*c.fleet.options.Objects),
		changed: map[int]revision{},
		wake:    make(chan struct{}),
	}
}

// stride leads from an object to the next one that changes. It is prime, so
// that all have their turn.
const stride = 7919

// change changes an object and returns its number.
func (t *table) change(turn int) int {
	c := t.cluster
	i := turn * stride % c.fleet.options.Objects
	c.rv++
	r := revision{number: t.changed[i].number + 1, rv: c.rv}
	t.changed[i] = r
	t.log = append(t.log, change{object: i, revision: r})
	close(t.wake)
	t.wake = make(chan struct{})

	return i
}

func (t *table) version(i int) int64 {
	if r, ok := t.changed[i]; ok {
		return r.rv
	}
	return t.first + int64(i)
}

// after returns the changes after a version.
func (t *table) after(rv int64) []change {
	n := sort.Search(len(t.log), func(i int) bool { return t.log[i].rv > rv })
	return t.log[n:len(t.log):len(t.log)]
}

// all returns all objects at their present revision, in no order.
func (t *table) all() []change {
	all := make([]change, t.cluster.fleet.options.Objects)
	for i := range all {
		all[i] = change{object: i, revision: revision{number: t.changed[i].number, rv: t.version(i)}}
	}
	return all
}

// render generates an object. It needs no lock.
func (t *table) render(x change) (client.Object, error) {
	c := t.cluster
	o := c.generator.Stored(t.kind, x.object, x.number)
	o.SetResourceVersion(strconv.FormatInt(x.rv, 10))
	return o, c.fleet.managed[t.number].Add(c.generator, o)
}

// selected generates the objects of a selection, in the order in which etcd has
// them.
func (t *table) selected(which selection, all []change) ([]client.Object, error) {
	if which.none {
		return nil, nil
	}
	var found []client.Object
	for _, x := range all {
		o, err := t.render(x)
		if err != nil {
			return nil, err
		}
		if which.matches(o) {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})

	return found, nil
}

// selection is which objects a request wants.
type selection struct {
	// object is that of a GET.
	object    string
	namespace string // empty selects all
	name      string // empty selects all
	// none reports that there is no such object, whatever its name is.
	none bool
}

func (s selection) matches(o client.Object) bool {
	return (s.namespace == "" || s.namespace == o.GetNamespace()) && (s.name == "" || s.name == o.GetName())
}
