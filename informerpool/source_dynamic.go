// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/fleetcache/fleetcache/informerpool/internal/counting"
)

// FromDynamic returns a source that reads through dynamic clients, including
// client-go's fake one. It decodes and encodes each object once more than
// [FromREST]; use FromREST for speed. clients must not block; FromDynamic panics
// if it is nil.
//
// client-go's fakes keep no resourceVersions and no history, and report this by
// not supporting streamed lists. For such a client the source counts the
// changes of objects itself, assigns a stable uid to objects without one, and
// opens the watch before it lists, so that no event is missed.
func FromDynamic(clients func(cluster types.NamespacedName) (dynamic.Interface, error)) Source {
	if clients == nil {
		panic("informerpool: FromDynamic: clients is required")
	}
	return &dynamicSource{clients: clients, versions: map[Key]*counting.Versions{}, early: map[Key]watch.Interface{}}
}

type dynamicSource struct {
	clients func(types.NamespacedName) (dynamic.Interface, error)

	mu       sync.Mutex // protects the fields below
	versions map[Key]*counting.Versions
	early    map[Key]watch.Interface // opened before a list without history
}

var (
	_ Source     = (*dynamicSource)(nil)
	_ KindSource = (*dynamicSource)(nil)
)

// forget drops the state of an informer that has ended.
func (s *dynamicSource) forget(key Key) {
	s.mu.Lock()
	delete(s.versions, key)
	w := s.early[key]
	delete(s.early, key)
	s.mu.Unlock()

	if w != nil {
		w.Stop()
	}
}

// continues makes the informer of a key count on from where that of another key
// is.
func (s *dynamicSource) continues(from, to Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.versions[from]; v != nil {
		s.versions[to] = v.Clone()
	}
}

// Ready implements Source.
func (s *dynamicSource) Ready(_ context.Context, cluster types.NamespacedName) (Epoch, error) {
	_, err := s.clients(cluster)
	return "", err
}

// KindOf implements KindSource by the kind of the shortest list, which fakes
// set, too.
func (s *dynamicSource) KindOf(ctx context.Context, r Request) (string, error) {
	client, err := s.clients(r.Key.Cluster)
	if err != nil {
		return "", err
	}
	list, err := client.Resource(r.Key.Resource).Namespace(r.Key.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: r.Key.LabelSelector, FieldSelector: r.Key.FieldSelector, Limit: 1,
	})
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(list.GetKind(), listSuffix), nil
}

// List implements Source.
func (s *dynamicSource) List(ctx context.Context, r Request) (io.ReadCloser, error) {
	client, err := s.clients(r.Key.Cluster)
	if err != nil {
		return nil, err
	}
	resource := client.Resource(r.Key.Resource).Namespace(r.Key.Namespace)
	if v := s.versionsOf(r.Key); r.Options.Limit == 1 && v.Counting() {
		// The history question before a resume.
		return nil, apierrors.NewResourceExpired("the client keeps no history to compare with")
	}
	list, err := resource.List(ctx, r.Options)
	if err != nil {
		return nil, err
	}

	if v := s.versionsOf(r.Key); r.MetadataOnly && v.Counting() {
		list.SetResourceVersion("")
		for i := range list.Items {
			v.Peek(&list.Items[i])
		}
	} else if list.GetResourceVersion() == "" || unsupported(client) {
		if list, err = s.listWithoutHistory(ctx, r, resource); err != nil {
			return nil, err
		}
	}

	body, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode list of %s: %w", r.Key, err)
	}
	return io.NopCloser(bytes.NewReader(body)), nil
}

// listWithoutHistory opens a watch and then lists again: changes in between
// arrive twice rather than never.
func (s *dynamicSource) listWithoutHistory(
	ctx context.Context, r Request, resource dynamic.ResourceInterface,
) (*unstructured.UnstructuredList, error) {
	opts := r.Options
	opts.Limit, opts.Continue = 0, ""
	// The watch outlives this request: the Watch call that follows takes it
	// over, and its body's Close ends it.
	w, err := resource.Watch(context.WithoutCancel(ctx), opts)
	if err != nil {
		return nil, err
	}
	list, err := resource.List(ctx, opts)
	if err != nil {
		w.Stop()
		return nil, err
	}
	v := s.versionsOf(r.Key)
	v.Count()
	for i := range list.Items {
		v.Stamp(&list.Items[i])
	}
	list.SetResourceVersion(v.Current())
	s.mu.Lock()
	old := s.early[r.Key]
	s.early[r.Key] = w
	s.mu.Unlock()

	if old != nil {
		old.Stop()
	}
	time.AfterFunc(earlyLife, func() { s.dropEarly(r.Key, w) })

	return list, nil
}

// earlyLife is how long a watch opened for a list waits to be taken over; the
// reflector does so as soon as it has read the list.
const earlyLife = time.Minute

// dropEarly stops a watch that was not taken over.
func (s *dynamicSource) dropEarly(key Key, w watch.Interface) {
	s.mu.Lock()
	mine := s.early[key] == w
	if mine {
		delete(s.early, key)
	}
	s.mu.Unlock()

	if mine {
		w.Stop()
	}
}

// Watch implements Source.
func (s *dynamicSource) Watch(ctx context.Context, r Request) (io.ReadCloser, error) {
	var w watch.Interface
	if !r.question {
		s.mu.Lock()
		w = s.early[r.Key]
		delete(s.early, r.Key)
		s.mu.Unlock()
	}

	v := s.versionsOf(r.Key)
	if w == nil {
		client, err := s.clients(r.Key.Cluster)
		if err != nil {
			return nil, err
		}
		if r.Options.SendInitialEvents != nil && (v.Counting() || unsupported(client)) {
			return nil, apierrors.NewBadRequest("the client does not stream lists")
		}
		if v.Counting() {
			return nil, apierrors.NewResourceExpired("the client keeps no history to resume from")
		}
		if w, err = client.Resource(r.Key.Resource).Namespace(r.Key.Namespace).Watch(ctx, r.Options); err != nil {
			return nil, err
		}
	}

	return v.Body(ctx, w), nil
}

// unsupported reports whether the client declares, as client-go's fakes do,
// that it cannot stream lists.
func unsupported(client any) bool {
	u, ok := client.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && u.IsWatchListSemanticsUnSupported()
}

func (s *dynamicSource) versionsOf(key Key) *counting.Versions {
	s.mu.Lock()
	defer s.mu.Unlock()

	v := s.versions[key]
	if v == nil {
		v = counting.New()
		s.versions[key] = v
	}
	return v
}

// counting reports whether the versions of an informer's objects are counted
// here, since the server keeps none.
func (s *dynamicSource) counting(key Key) bool {
	s.mu.Lock()
	v := s.versions[key]
	s.mu.Unlock()
	return v != nil && v.Counting()
}
