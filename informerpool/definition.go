// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// definition is the answer to the question which CustomResourceDefinition
// defines a resource. It has to be asked while the resource is served: a
// resource of an aggregated API has none, and that such a definition is missing
// later means nothing.
type definition struct {
	asked time.Time
	done  chan struct{} // closed when the fields below are set
	definitionState
	err error // why that is not known
}

// definitionState is what defines a resource.
type definitionState struct {
	uid        types.UID // empty: there is none
	generation int64     // changes with each change of the specification
}

const (
	// definitionAge is how long an answer serves further informers.
	definitionAge = time.Minute
	// definitionWait is how long a reflector that has its turn waits for an answer
	// to another informer.
	definitionWait = time.Second
	// definitionTries bounds how often the question is asked. If there is no
	// answer by then, the next watch asks again.
	definitionTries = 8
	// maxDefinition bounds a definition's metadata, whose annotations may have
	// 256 KiB. Of a larger one the identity is read.
	maxDefinition = 1 << 20
)

var (
	errDefinitions = errors.New("not a list of the CustomResourceDefinition alone")
	errNotAnswered = errors.New("the server did not answer for it while the resource was served")
	errUndefined   = errors.New("no CustomResourceDefinition defined it, so its objects may exist")
	errAbandoned   = errors.New("the informer that asked for it ended")
	errDefined     = errors.New("its CustomResourceDefinition exists")
)

// customResourceDefinitions is the resource whose objects define resources.
var customResourceDefinitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// native are the groups of API servers of Kubernetes whose names have a dot, as
// those of definitions do. To ask for one that is missing here does no harm.
var native = sets.New("admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io",
	"authentication.k8s.io", "authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io",
	"discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io",
	"networking.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io",
	"storage.k8s.io", "storagemigration.k8s.io")

// definable reports whether a CustomResourceDefinition may define resources of
// a group.
func definable(group string) bool { return strings.Contains(group, ".") && !native.Has(group) }

// answer returns what was answered, or why there is no answer.
func (d *definition) answer() (definitionState, error) {
	if d == nil || !d.over() {
		return definitionState{}, errNotAnswered
	}
	return d.definitionState, d.err
}

// String returns what identifies the schema of the definition: empty if it is
// not known.
func (d *definition) String() string {
	switch is, err := d.answer(); {
	case err != nil:
		return ""
	case is.uid == "":
		return "none"
	default:
		return fmt.Sprintf("%s/%d", is.uid, is.generation)
	}
}

// over reports whether the question is no longer under way.
func (d *definition) over() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// definitions are the definitions of a cluster that its informers have asked
// for lately: those of one resource share an answer. The zero value has none.
type definitions struct {
	mu sync.Mutex // protects of; no other lock is taken under it
	of map[definitionKey]*definition
}

type definitionKey struct {
	resource schema.GroupResource
	epoch    Epoch
}

// shared returns the definition of a resource that was asked for after a time.
// If there is none, it returns a new one, which the caller asks for.
func (d *definitions) shared(key definitionKey, after time.Time) (found *definition, ask bool) {
	d.mu.Lock()
	defer d.mu.Unlock()

	now := time.Now()
	found = d.of[key]
	if found != nil && found.asked.After(after) && now.Sub(found.asked) < definitionAge &&
		(!found.over() || !errors.Is(found.err, errAbandoned)) {
		return found, false
	}
	if d.of == nil {
		d.of = map[definitionKey]*definition{}
	}
	maps.DeleteFunc(d.of, func(_ definitionKey, old *definition) bool { return now.Sub(old.asked) >= definitionAge })
	found = &definition{asked: now, done: make(chan struct{})}
	d.of[key] = found

	return found, true
}

// learnDefinition has the server asked which definition the resource has, once a
// list or a watch shows that it is served. It does not wait. An answer from
// before the resource was last missing says nothing about the objects of now.
func (s *server) learnDefinition() {
	i := s.informer
	_, able := i.pool.options.Source.(Discoverer)
	if !able || !definable(i.key.Resource.Group) {
		return
	}
	if d := i.published.definition.Load(); d != nil && s.missed.IsZero() && (!d.over() || d.err == nil) {
		return
	}
	found, ask := s.definition()
	i.published.definition.Store(found)
	i.mu.Lock()
	i.mu.defined = cmp.Or(i.mu.defined, found) // a later answer may be of a schema that no list has shown
	i.mu.Unlock()

	s.missed = time.Time{}
	if ask {
		asked := server{informer: i, epoch: s.epoch}
		i.pool.running.Go(func() { asked.askDefinition(found) })
	}
}

// definition returns the definition of the resource, and whether the caller is
// to ask for it.
func (s *server) definition() (found *definition, ask bool) {
	key := definitionKey{resource: s.informer.key.Resource.GroupResource(), epoch: s.epoch}
	return s.informer.cluster.definitions.shared(key, s.missed)
}

// definitionNow returns the definition of the resource as of now, or nil if it
// can have none. The caller has its turn to ask. Another informer that has asked
// may still wait for one, or between two tries, so that it is not waited for.
func (s *server) definitionNow(ctx context.Context) *definition {
	if _, able := s.informer.pool.options.Source.(Discoverer); !able || !definable(s.informer.key.Resource.Group) {
		return nil
	}
	d, ask := s.definition()
	if !ask {
		select {
		case <-d.done:
			return d
		case <-ctx.Done():
			return d
		case <-time.After(definitionWait):
			d = &definition{asked: time.Now(), done: make(chan struct{})}
		}
	}
	defer close(d.done)
	if d.definitionState, d.err = s.readDefinition(ctx); d.err != nil && !apierrors.IsForbidden(d.err) {
		d.err = fmt.Errorf("%w: %w", errAbandoned, d.err) // another informer may ask again
	}

	return d
}

// askDefinition asks until there is an answer. A refusal is one: a person has
// to grant the right.
func (s *server) askDefinition(d *definition) {
	defer close(d.done)
	i := s.informer
	subject := subjectOf(&i.key)
	subject.Resource, subject.Selection = customResourceDefinitions.Resource, subject.Resource
	for try := range definitionTries {
		d.err = i.cluster.ask(i.ctx, subject, func(error) {}, func() (err error) {
			d.definitionState, err = s.readDefinition(i.ctx)
			return err
		})
		if d.err == nil || apierrors.IsForbidden(d.err) || errors.Is(d.err, ErrEpochChanged) {
			break
		}
		select {
		case <-i.ctx.Done():
		case <-time.After(time.Second << try):
		}
	}
	if i.ctx.Err() != nil {
		d.err = errAbandoned
	}
	if apierrors.IsForbidden(d.err) && i.pool.undefined.CompareAndSwap(false, true) {
		i.pool.options.Logger.Info("CustomResourceDefinitions may not be listed: the objects of one "+
			"that is deleted are not delivered as deleted, here and wherever else that is forbidden",
			"informer", i.key.String(), "error", d.err.Error())
	}
}

// readDefinition reads from the server which definition the resource has.
func (s *server) readDefinition(ctx context.Context) (definitionState, error) {
	i := s.informer
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	name := i.key.Resource.Resource + "." + i.key.Resource.Group
	selector := fields.OneTermEqualSelector("metadata.name", name).String()
	r := Request{
		Key: Key{
			Cluster:       i.key.Cluster,
			Resource:      customResourceDefinitions,
			Kind:          "CustomResourceDefinition",
			FieldSelector: selector,
		},
		Epoch:        s.epoch,
		Options:      metav1.ListOptions{FieldSelector: selector, Limit: 1},
		MetadataOnly: true,
	}
	body, err := s.send(ctx, i.pool.options.Source.List, r)
	if err != nil {
		return definitionState{}, err
	}
	defer func() {
		cancel() // before Close, which would otherwise read the rest of the body to reuse the connection
		_ = body.Close()
	}()

	return identityIn(body, name)
}

// identityIn returns the definition of a name in a list of it alone.
func identityIn(body io.Reader, name string) (found definitionState, _ error) {
	items := wire.NewListReader(body, wire.Limits{Object: maxDefinition, Pass: true})
	defer items.Close()
	for {
		item, err := items.Next()
		switch {
		case errors.Is(err, io.EOF):
			kind := items.Header().Kind
			if kind != "PartialObjectMetadataList" && kind != "CustomResourceDefinitionList" ||
				items.Header().ResourceVersion == "" || items.Header().Continue != "" {
				return definitionState{}, errDefinitions
			}
			return found, nil
		case err != nil:
			return definitionState{}, err
		}
		it := wire.Identify(item)
		if it.Name != name || it.UID == "" || found.uid != "" {
			return definitionState{}, errDefinitions
		}
		found.uid = types.UID(it.UID)
		if whole, err := wire.Scan(item); err == nil {
			found.generation = whole.Generation
		}
	}
}

// undefined reports whether the definition of a resource that is not served is
// gone, and its objects with it, or why that is not so, or not known.
func (s *server) undefined(ctx context.Context) (gone bool, why error) {
	if !definable(s.informer.key.Resource.Group) {
		return false, errUndefined
	}
	was, err := s.informer.published.definition.Load().answer()
	switch {
	case err != nil:
		return false, fmt.Errorf("whether its CustomResourceDefinition is gone is not known: %w", err)
	case was.uid == "":
		return false, errUndefined
	}
	is, err := s.readDefinition(ctx)
	switch {
	case err != nil:
		return false, fmt.Errorf("whether its CustomResourceDefinition is gone is not known: %w", err)
	case is.uid == was.uid:
		return false, errDefined
	}
	return true, nil
}
