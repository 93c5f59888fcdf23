// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// FromDynamic returns a source that reads through dynamic clients, including
// client-go's fake one. It decodes and encodes each object once more than
// [FromREST]; use FromREST for speed. clients must not block.
//
// client-go's fakes keep no resourceVersions and no history, and report this by
// not supporting streamed lists. For such a client the source counts the
// changes of objects itself, assigns a stable uid to objects without one, and
// opens the watch before it lists, so that no event is missed.
func FromDynamic(clients func(cluster types.NamespacedName) (dynamic.Interface, error)) Source {
	return &dynamicSource{clients: clients, versions: map[Key]*versions{}, early: map[Key]watch.Interface{}}
}

type dynamicSource struct {
	clients func(types.NamespacedName) (dynamic.Interface, error)

	mu       sync.Mutex // protects the fields below
	versions map[Key]*versions
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
	if v := s.versionsOf(r.Key); r.Options.Limit == 1 && v.counting() {
		return nil, apierrors.NewResourceExpired("the client keeps no history to compare with") // the history question before a resume
	}
	list, err := resource.List(ctx, r.Options)
	if err != nil {
		return nil, err
	}

	if v := s.versionsOf(r.Key); r.MetadataOnly && v.counting() {
		list.SetResourceVersion("")
		for i := range list.Items {
			v.peek(&list.Items[i])
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
func (s *dynamicSource) listWithoutHistory(ctx context.Context, r Request, resource dynamic.ResourceInterface) (*unstructured.UnstructuredList, error) {
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
	v.count()
	for i := range list.Items {
		v.stamp(&list.Items[i])
	}
	list.SetResourceVersion(v.current())
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
	s.mu.Lock()
	w := s.early[r.Key]
	delete(s.early, r.Key)
	s.mu.Unlock()

	v := s.versionsOf(r.Key)
	if w == nil {
		client, err := s.clients(r.Key.Cluster)
		if err != nil {
			return nil, err
		}
		if r.Options.SendInitialEvents != nil && (v.counting() || unsupported(client)) {
			return nil, apierrors.NewBadRequest("the client does not stream lists")
		}
		if v.counting() {
			return nil, apierrors.NewResourceExpired("the client keeps no history to resume from")
		}
		if w, err = client.Resource(r.Key.Resource).Namespace(r.Key.Namespace).Watch(ctx, r.Options); err != nil {
			return nil, err
		}
	}

	return &watchBody{ctx: ctx, w: w, versions: v}, nil
}

// unsupported reports whether the client declares, as client-go's fakes do,
// that it cannot stream lists.
func unsupported(client any) bool {
	u, ok := client.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && u.IsWatchListSemanticsUnSupported()
}

func (s *dynamicSource) versionsOf(key Key) *versions {
	s.mu.Lock()
	defer s.mu.Unlock()

	v := s.versions[key]
	if v == nil {
		v = &versions{seen: map[types.NamespacedName]version{}, lives: map[types.NamespacedName]int{}}
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
	return v != nil && v.counting()
}

// versions counts the states of the objects of one informer whose server does
// not. Each informer has its own counters, because two streams of the same
// changes are not read at the same pace.
type versions struct {
	mu    sync.Mutex // protects the fields below
	on    bool
	last  uint64
	seen  map[types.NamespacedName]version
	lives map[types.NamespacedName]int // how often an object of that name was deleted
	past  int                          // at least the highest such count of the names that were dropped
}

// maxLives is how many names of deleted objects are kept.
const maxLives = 10_000

// count records that the server keeps no versions.
func (v *versions) count() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.on = true
}

func (v *versions) counting() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.on
}

type version struct {
	hash uint64
	rv   uint64
	uid  types.UID
}

func (v *versions) current() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strconv.FormatUint(v.last, 10)
}

// stamp gives the object a resourceVersion that grows when its content changes,
// and a uid if it has none. It reports whether the content is new: fakes begin
// a watch with the existing objects.
func (v *versions) stamp(u *unstructured.Unstructured) (news bool) {
	if !v.counting() {
		return true
	}
	content, err := u.MarshalJSON()
	if err != nil {
		return true // the store will refuse an object that cannot be encoded, and count it
	}
	h := fnv.New64a()
	_, _ = h.Write(content)
	v.mu.Lock()
	defer v.mu.Unlock()

	key := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
	s, known := v.seen[key]
	news = !known || s.hash != h.Sum64()
	if news {
		v.last++
		if !known {
			s.uid = types.UID(fmt.Sprintf("%s#%d", key, v.past+v.lives[key]))
		}
		s.hash, s.rv = h.Sum64(), v.last
		v.seen[key] = s
	}

	if u.GetUID() == "" {
		u.SetUID(s.uid)
	}
	u.SetResourceVersion(strconv.FormatUint(s.rv, 10))

	return news
}

// peek gives the object the version and uid that stamp would, but does not
// record new content: its event may be on its way.
func (v *versions) peek(u *unstructured.Unstructured) {
	content, err := u.MarshalJSON()
	if err != nil {
		return
	}
	h := fnv.New64a()
	_, _ = h.Write(content)
	v.mu.Lock()
	defer v.mu.Unlock()

	s, known := v.seen[types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}]
	if !known || s.hash != h.Sum64() {
		s.rv = v.last + 1
	}
	if u.GetUID() == "" {
		u.SetUID(cmp.Or(s.uid, "new"))
	}
	u.SetResourceVersion(strconv.FormatUint(s.rv, 10))
}

// deleted gives a deleted object its last version, which is newer than all
// before, and drops it.
func (v *versions) deleted(u *unstructured.Unstructured) {
	if !v.counting() {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()

	key := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
	v.last++
	if u.GetUID() == "" {
		u.SetUID(v.seen[key].uid)
	}
	u.SetResourceVersion(strconv.FormatUint(v.last, 10))
	delete(v.seen, key)
	if v.lives[key]++; len(v.lives) <= maxLives {
		return
	}
	most := 0
	for _, n := range v.lives {
		most = max(most, n)
	}
	v.past += most // so that no name gets a number again
	clear(v.lives)
}

// watchBody reads a watch.Interface as the JSON frames an API server would
// send.
type watchBody struct {
	ctx      context.Context //nolint:containedctx // an io.Reader has no other way to end with its request
	w        watch.Interface
	versions *versions
	rest     []byte
}

// Read implements io.Reader.
func (b *watchBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		select {
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		case event, ok := <-b.w.ResultChan():
			if !ok {
				return 0, io.EOF
			}
			frame, err := b.encode(event)
			if err != nil {
				return 0, err
			}
			b.rest = frame
		}
	}

	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// encode returns the frame of an event, or nil if the event repeats known
// content.
func (b *watchBody) encode(event watch.Event) ([]byte, error) {
	object := event.Object
	if u, ok := object.(*unstructured.Unstructured); ok && event.Type != watch.Bookmark {
		u = u.DeepCopy() // a fake hands the same object to every watcher
		if event.Type == watch.Deleted {
			b.versions.deleted(u)
		} else {
			if !b.versions.stamp(u) {
				return nil, nil
			}
		}

		object = u
	}

	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode watch event: %w", err)
	}
	frame, err := json.Marshal(metav1.WatchEvent{Type: string(event.Type), Object: runtime.RawExtension{Raw: raw}})
	if err != nil {
		return nil, fmt.Errorf("encode watch event: %w", err)
	}
	return append(frame, '\n'), nil
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.w.Stop()
	return nil
}
