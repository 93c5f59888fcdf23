// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pooltest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Widgets is the resource that a Server serves.
var Widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// Server is an in-memory API server of one resource: it has a log of
// versions, paged lists, streamed lists, watches that resume, bookmarks and
// compaction. It works inside a synctest bubble.
type Server struct {
	Mu        sync.Mutex // protects the fields below
	Epoch     informerpool.Epoch
	Version   uint64
	uids      int
	Objects   map[types.NamespacedName]Object
	Log       []Change
	snapshots map[uint64]map[types.NamespacedName]Object
	Compacted uint64 // watches from before fail with 410
	Watchers  map[*Watch]struct{}
	Requests  map[string]int // by verb; "stream" is a streamed list, "guard" the history question
	Faults

	Accepted func(verb string, w *Watch) // called with a stream that the server begins
}

// Faults are what a Server does that it should not.
type Faults struct {
	Fail     func(verb string) error // answers in place of the server
	Refuse   func(k informerpool.Key) error
	Block    chan struct{} // requests wait for it to close
	NotReady chan struct{} // Ready waits for it to close
	NoStream bool          // an old server
	CutAfter int           // bytes until a list breaks; 0 is never
	Deaf     bool          // watches do not receive changes
	Inexact  bool          // no list of an earlier moment
	Late     time.Duration // how much later than lists watches show a change
	Lag      uint64        // by how many versions lists are behind
}

// Object is an object of a Server.
type Object struct {
	Namespace, Name, UID string
	Version              uint64
	Value                int
	Labels               map[string]string
}

// Change is one entry of the log of a Server.
type Change struct {
	Version uint64
	Frame   string
	Object  Object
	before  Object
}

// NewServer returns a server without objects.
func NewServer() *Server {
	return &Server{
		Epoch:     "a",
		Version:   100,
		Compacted: 100,
		Objects:   map[types.NamespacedName]Object{},
		Watchers:  map[*Watch]struct{}{},
		Requests:  map[string]int{},
		snapshots: map[uint64]map[types.NamespacedName]Object{},
	}
}

// JSON returns the object as an API server encodes it.
func (o Object) JSON() []byte {
	m := map[string]any{
		"apiVersion": "example.com/v1",
		"kind":       "Widget",
		"metadata": map[string]any{
			"namespace":       o.Namespace,
			"name":            o.Name,
			"uid":             o.UID,
			"resourceVersion": strconv.FormatUint(o.Version, 10),
			"labels":          o.Labels,
		},
		"spec": map[string]any{"value": o.Value},
	}
	if owner := o.Labels["owner"]; owner != "" {
		m["metadata"].(map[string]any)["ownerReferences"] = []map[string]any{
			{
				"apiVersion": "example.com/v1",
				"kind":       "Widget",
				"name":       owner,
				"uid":        owner,
			},
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// Put creates or updates an object, and returns its version.
func (s *Server) Put(namespace, name string, value int, labels ...string) uint64 {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Version++
	key := types.NamespacedName{Namespace: namespace, Name: name}
	o, exists := s.Objects[key]
	event := Change{Version: s.Version, Frame: "MODIFIED", before: o}
	if !exists {
		s.uids++
		event.Frame = "ADDED"
		o = Object{Namespace: namespace, Name: name, UID: fmt.Sprintf("%s-%d", s.Epoch, s.uids)}
	}
	o.Version, o.Value = s.Version, value
	if len(labels) > 0 {
		o.Labels = map[string]string{}
		for _, l := range labels {
			k, v, _ := strings.Cut(l, "=")
			o.Labels[k] = v
		}
	}
	s.Objects[key] = o
	event.Object = o
	s.emit(event)
	return s.Version
}

// Delete deletes an object, if it exists.
func (s *Server) Delete(namespace, name string) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	o, exists := s.Objects[key]
	if !exists {
		return
	}
	s.Version++
	delete(s.Objects, key)
	before := o
	o.Version = s.Version
	s.emit(Change{
		Version: s.Version,
		Frame:   "DELETED",
		Object:  o,
		before:  before,
	})
}

func (s *Server) emit(e Change) {
	s.Log = append(s.Log, e)
	if s.Deaf {
		return
	}
	if s.Late > 0 {
		time.AfterFunc(s.Late, func() { s.deliver(e) })
		return
	}
	for w := range s.Watchers {
		w.offer(e)
	}
}

// deliver sends watches the changes up to one that is late, in order.
func (s *Server) deliver(until Change) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for w := range s.Watchers {
		for _, e := range s.Log {
			if e.Version <= until.Version && e.Version > w.delivered {
				w.offer(e)
			}
		}
	}
}

// Set changes fields of the server under its lock.
func (s *Server) Set(change func(*Server)) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	change(s)
}

// Count returns how many requests of a verb have arrived.
func (s *Server) Count(verb string) int {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Requests[verb]
}

// State is every object's value and version, as a list would show them.
func (s *Server) State(match func(Object) bool) map[string]string {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	out := map[string]string{}
	for k, o := range s.Objects {
		if match == nil || match(o) {
			out[k.String()] = fmt.Sprintf("%s@%d", o.UID, o.Version)
		}
	}
	return out
}

// Read returns an object of a model server as a live read shows it.
func (s *Server) Read(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, o := range s.Objects {
		if o.Name == name {
			u := &unstructured.Unstructured{}
			require.NoError(t, u.UnmarshalJSON([]byte(o.JSON())))
			return u
		}
	}
	require.Fail(t, "no object", name)
	return nil
}

// Widget is a typed form of the model server's objects.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Value int `json:"value"`
	} `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (w *Widget) DeepCopyObject() runtime.Object {
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	return &c
}
