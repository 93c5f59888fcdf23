// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/packed"
)

var pod = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "default", Name: name} }

// cache is a View with a few objects.
type cache struct {
	t       *testing.T
	at      string
	objects map[string]*informerpool.Object
	selects func(labels map[string]string) bool
}

func newCache(t *testing.T, at string) *cache {
	return &cache{t: t, at: at, objects: map[string]*informerpool.Object{}}
}

// put adds an object, and moves the cache to its version.
func (c *cache) put(name, uid, version string) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(pod)
	u.SetName(name)
	u.SetUID(types.UID(uid))
	u.SetResourceVersion(version)
	codec := packed.NewCodec()
	o, err := codec.PackUnstructured(codec.Kind(pod), u)
	require.NoError(c.t, err)
	c.objects[name], c.at = o, version
}

func (c *cache) Position() informerpool.Position {
	return informerpool.Position{Synced: true, ResourceVersion: c.at}
}

func (c *cache) Find(_, name string) (*informerpool.Object, error) {
	if o := c.objects[name]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
}

func (c *cache) In(namespace string) string { return namespace }

func (c *cache) MaySelect(_ client.ObjectKey, labels map[string]string) bool {
	return c.selects == nil || c.selects(labels)
}

// test runs a test in a bubble with a log of one history.
func test(t *testing.T, f func(t *testing.T, l *Log, epoch *informerpool.Epoch)) {
	synctest.Test(t, func(t *testing.T) {
		epoch := informerpool.Epoch("a")
		f(t, New(func() informerpool.Epoch { return epoch }), &epoch)
	})
}

func (l *Log) wrote(w Write) {
	w.GVK = pod
	l.Begin()(w)
}

func lacksNone(client.ObjectKey, map[string]string) bool { return false }

// behind reports whether a read of a key would not be answered by a cache.
func behind(l *Log, name string, c *cache) bool {
	p := l.Of(pod, key(name))
	return p != nil && p.Behind(c)
}

// TestHazardObjectArrivesAfterItsDeletion: the cache learns of an object, which
// another client has created, only after the deletion of it was answered.
func TestHazardObjectArrivesAfterItsDeletion(t *testing.T) {
	test(t, func(t *testing.T, l *Log, _ *informerpool.Epoch) {
		l.wrote(Write{Key: key("one"), Gone: "uid-1"})
		l.wrote(Write{Key: key("one"), Gone: "uid-2"})
		c := newCache(t, "1")
		require.False(t, behind(l, "one", c), "it does not have it")
		c.put("one", "uid-1", "5")
		require.True(t, behind(l, "one", c))
		require.True(t, behind(l, "", c), "nor is a list of the namespace answered")
		require.False(t, behind(l, "two", c))
		c.put("one", "uid-2", "7")
		require.True(t, behind(l, "one", c))
		c.put("one", "uid-3", "9")
		require.False(t, behind(l, "one", c))
	})
}

// TestHazardEarlierStateArrivesInASelection: a write moved an object out of the
// selection of a cache that has not seen it enter.
func TestHazardEarlierStateArrivesInASelection(t *testing.T) {
	test(t, func(t *testing.T, l *Log, _ *informerpool.Epoch) {
		l.wrote(Write{Key: key("one"), Version: "11", Labels: map[string]string{"app": "y"}, Labeled: true})
		c := newCache(t, "9")
		c.selects = func(labels map[string]string) bool { return labels["app"] == "x" }
		require.False(t, behind(l, "one", c))
		c.put("one", "uid-1", "10")
		require.True(t, behind(l, "one", c))

		delete(c.objects, "one")
		c.at = "9"
		l.wrote(Write{Key: key("one"), Version: "12"})
		require.True(t, behind(l, "one", c), "the labels of this state are not known")
	})
}

// TestHazardCacheHasComeFurtherWithoutTheEvent: a gateway drops the events of a
// watch, and passes bookmarks.
func TestHazardCacheHasComeFurtherWithoutTheEvent(t *testing.T) {
	labels := map[string]string{"app": "x"}
	test(t, func(t *testing.T, l *Log, _ *informerpool.Epoch) {
		c := newCache(t, "10")
		c.put("updated", "uid-1", "10")
		l.wrote(Write{Key: key("updated"), Version: "11", Labels: labels, Labeled: true})
		l.wrote(Write{Key: key("created"), Version: "12", Labels: labels, Labeled: true})
		c.at = "20"
		require.True(t, behind(l, "updated", c))
		require.True(t, behind(l, "created", c))
		c.put("updated", "uid-1", "13")
		require.False(t, behind(l, "updated", c))
		require.True(t, behind(l, "", c))
		c.selects = func(map[string]string) bool { return false }
		require.False(t, behind(l, "created", c))
	})
}

// TestDeletionByOthersEndsAWrite: a cache that has come further lacks the object
// because it was deleted, which it has shown, or the API server.
func TestDeletionByOthersEndsAWrite(t *testing.T) {
	written := Write{Key: key("one"), Version: "11", Labeled: true}
	for name, deleted := range map[string]func(l *Log, c *cache){
		"the cache had it": func(l *Log, c *cache) {
			c.put("one", "uid-1", "11")
			require.False(t, behind(l, "one", c))
			delete(c.objects, "one")
		},
		"a Get found nothing": func(l *Log, _ *cache) { l.Of(pod, key("one")).Absent() },
		"a list lacked it": func(l *Log, _ *cache) {
			l.Of(pod, key("")).Listed("20", func(of client.ObjectKey, _ map[string]string) bool {
				return of == key("one")
			})
		},
		"it was deleted here, too": func(l *Log, _ *cache) { l.wrote(Write{Key: key("one"), Gone: "uid-1"}) },
		"without an answer that names it": func(l *Log, _ *cache) {
			l.wrote(Write{Key: key("one"), Version: "12"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, func(t *testing.T, l *Log, _ *informerpool.Epoch) {
				c := newCache(t, "20")
				l.wrote(written)
				require.True(t, behind(l, "one", c))
				deleted(l, c)
				c.at = "20"
				require.False(t, behind(l, "one", c))

				again := written
				again.Version = "21"
				l.wrote(again)
				c.at = "30"
				require.True(t, behind(l, "one", c), "another object of the name")
			})
		})
	}
}

// TestTwoKindsOfOneObject: reads by either kind show what was written by the
// other, in whatever version.
func TestTwoKindsOfOneObject(t *testing.T) {
	test(t, func(t *testing.T, l *Log, _ *informerpool.Epoch) {
		old, now := schema.GroupVersionKind{Version: "v1", Kind: "Event"},
			schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}
		l.Begin()(Write{GVK: now, Key: key("one"), Version: "5"})
		l.Begin()(Write{GVK: old, Key: key("two"), Version: "6"})
		for _, kind := range []schema.GroupVersionKind{old, now} {
			require.NotNil(t, l.Of(kind, key("one")))
			require.NotNil(t, l.Of(kind, key("two")))
		}
		l.wrote(Write{Key: key("three"), Version: "7"})
		require.NotNil(t, l.Of(schema.GroupVersionKind{Version: "v1beta1", Kind: "Pod"}, key("three")))
		require.Nil(t, l.Of(schema.GroupVersionKind{Group: "other", Version: "v1", Kind: "Event"}, key("one")))
	})
}

// TestWritesAreOrderedByTheirVersions: answers may be recorded in another order
// than that of the writes.
func TestWritesAreOrderedByTheirVersions(t *testing.T) {
	test(t, func(t *testing.T, l *Log, _ *informerpool.Epoch) {
		c := newCache(t, "1")
		c.put("one", "uid-1", "100")
		l.wrote(Write{Key: key("one"), Version: "101"})
		l.wrote(Write{Key: key("one"), Version: "99"})
		require.True(t, behind(l, "one", c))
		c.put("one", "uid-1", "101")
		require.False(t, behind(l, "one", c))
	})
}

// TestVersionsWithoutAnOrderAreRecognized: only the very state that was written
// shows the write, for a minute.
func TestVersionsWithoutAnOrderAreRecognized(t *testing.T) {
	test(t, func(t *testing.T, l *Log, _ *informerpool.Epoch) {
		c := newCache(t, "x")
		c.put("one", "uid-1", "7f")
		l.wrote(Write{Key: key("one"), Version: "8a"})
		require.False(t, l.Of(pod, key("one")).Unknown(), "waiting helps")
		require.True(t, behind(l, "one", c))
		l.Of(pod, key("one")).Listed("9c", lacksNone)
		require.True(t, behind(l, "one", c))
		c.put("one", "uid-1", "8a")
		require.False(t, behind(l, "one", c))
		c.put("one", "uid-1", "77")
		require.True(t, behind(l, "one", c))
		time.Sleep(unknownFor)
		require.False(t, behind(l, "one", c))
	})
}

// TestStateWithoutAnOrderShowsNoWrite has a cache whose server gives no version
// to its lists, or one that cannot be compared: it may be before the write.
func TestStateWithoutAnOrderShowsNoWrite(t *testing.T) {
	for _, at := range []string{"", "opaque"} {
		test(t, func(t *testing.T, l *Log, _ *informerpool.Epoch) {
			l.wrote(Write{Key: key("a"), Version: "5"})
			c := newCache(t, at)
			require.True(t, behind(l, "a", c), "%q", at)
			c.put("a", "uid", "4")
			c.at = at
			require.True(t, behind(l, "a", c), "%q", at)
			c.put("a", "uid", "opaque")
			c.at = at
			require.True(t, behind(l, "a", c), "%q", at)
			c.put("a", "uid", "5")
			c.at = at
			require.False(t, behind(l, "a", c), "%q", at)
		})
	}
}

// TestListWithoutAVersionEndsNothing has lists from which it cannot be known
// what a cache has to show.
func TestListWithoutAVersionEndsNothing(t *testing.T) {
	for _, version := range []string{"", "opaque"} {
		test(t, func(t *testing.T, l *Log, _ *informerpool.Epoch) {
			l.wrote(Write{Key: client.ObjectKey{Namespace: "default"}})
			time.Sleep(unknownFor - time.Second)
			p := l.Of(pod, key("a"))
			require.True(t, p.Unknown())
			p.Listed(version, lacksNone)
			require.True(t, l.Of(pod, key("a")).Unknown())
			time.Sleep(2 * time.Second)
			require.False(t, behind(l, "a", newCache(t, "9")), "the minute has not begun again")
		})
	}
}

// TestListEndsWhatIsUnknownOfAnExecutedWrite, but not of one that may be
// executed later.
func TestListEndsWhatIsUnknownOfAnExecutedWrite(t *testing.T) {
	test(t, func(t *testing.T, l *Log, _ *informerpool.Epoch) {
		c := newCache(t, "5")
		l.wrote(Write{Key: key("")})
		before := l.Of(pod, key(""))
		require.True(t, before.Unknown())
		require.True(t, behind(l, "one", c), "any object of the namespace")
		before.Listed("", lacksNone)
		require.True(t, behind(l, "one", c))
		before.Listed("6", lacksNone)
		require.True(t, behind(l, "one", c))
		c.at = "6"
		require.False(t, behind(l, "one", c))

		l.wrote(Write{Key: key("")})
		before = l.Of(pod, key(""))
		time.Sleep(time.Millisecond)
		l.wrote(Write{Key: key("")})
		before.Listed("7", lacksNone)
		c.at = "7"
		require.True(t, behind(l, "one", c), "the list began before the last write ended")

		l.wrote(Write{Key: key("two"), Unknown: true})
		l.wrote(Write{Key: key("two")})
		l.Of(pod, key("two")).Listed("8", lacksNone)
		c.at = "8"
		require.True(t, behind(l, "two", c))
		time.Sleep(unknownFor)
		require.False(t, behind(l, "two", c))
	})
}

// TestWriteThatSpansTwoHistoriesIsUnknown: neither history is known to have it.
func TestWriteThatSpansTwoHistoriesIsUnknown(t *testing.T) {
	test(t, func(t *testing.T, l *Log, epoch *informerpool.Epoch) {
		c := newCache(t, "5")
		l.wrote(Write{Key: key("two"), Version: "50"})
		ended := l.Begin()
		*epoch = "b"
		ended(Write{GVK: pod, Key: key("one"), Version: "3"})
		require.True(t, behind(l, "one", c))
		require.False(t, behind(l, "two", c), "of the earlier history")
		*epoch = "c"
		require.False(t, behind(l, "one", c))
		require.False(t, l.Any())
	})
}

// TestMemoryIsBounded: however many objects are written, nothing is forgotten
// before its time.
func TestMemoryIsBounded(t *testing.T) {
	test(t, func(t *testing.T, l *Log, _ *informerpool.Epoch) {
		other := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
		l.Begin()(Write{GVK: other, Key: key("one"), Version: "7000"})
		for i := range 5 * maxEntries {
			l.wrote(Write{Key: key(fmt.Sprint(i)), Version: strconv.Itoa(1000 + i), Labeled: true})
			require.LessOrEqual(t, l.count, maxEntries)
		}
		c := newCache(t, "1003")
		require.True(t, behind(l, "0", c), "the objects of the kind share what was written last")
		c.at = strconv.Itoa(1000 + 5*maxEntries)
		require.False(t, behind(l, "0", c))
		require.True(t, l.Of(other, key("one")).Behind(c))

		l.wrote(Write{Key: key("gone"), Gone: "uid"})
		for i := range 2 * maxEntries {
			l.wrote(Write{Key: key(fmt.Sprint(i)), Version: "1000"})
		}
		require.True(t, l.Of(pod, key("gone")).Unknown(), "which uid it was is not known any more")

		time.Sleep(keep + time.Second)
		require.Nil(t, l.Of(pod, key("")))
		l.Begin()(Write{GVK: other, Key: key("one"), Version: "7001"})
		require.Equal(t, 1, l.count)
		for i := range 2 * maxGone {
			l.wrote(Write{Key: key("one"), Gone: types.UID(fmt.Sprint(i))})
		}
		require.True(t, l.Of(pod, key("one")).Unknown())
	})
}

// TestNamespacesOfObjectsWithoutAnyAreIgnored, as the API server does.
func TestNamespacesOfObjectsWithoutAnyAreIgnored(t *testing.T) {
	test(t, func(t *testing.T, l *Log, _ *informerpool.Epoch) {
		l.wrote(Write{Key: client.ObjectKey{Name: "one"}, Version: "5"})
		l.wrote(Write{Key: key("two"), Version: "6"})
		c := newCache(t, "1")
		require.True(t, behind(l, "one", c))
		require.True(t, l.Of(pod, client.ObjectKey{Name: "two"}).Behind(c))
		require.Nil(t, l.Of(pod, client.ObjectKey{Namespace: "other", Name: "two"}))
	})
}
