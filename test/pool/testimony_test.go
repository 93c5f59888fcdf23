// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// estate is a cluster whose resources are kept in one storage, or in several. It
// serves resources of any name, without objects.
type estate struct {
	main  *pooltest.Server
	apart map[string]*pooltest.Server // by resource

	mu        sync.Mutex // protects the fields below
	questions map[string]int
	before    func(ctx context.Context, resource string) error // answers a question in place of the server
}

func (e *estate) storage(k informerpool.Key) *pooltest.Server {
	if s := e.apart[k.Resource.GroupResource().String()]; s != nil {
		return s
	}
	return e.main
}

// asks counts a request if it is the history question.
func (e *estate) asks(ctx context.Context, r informerpool.Request) error {
	if r.Options.Limit != 1 && !strings.HasPrefix(r.Options.FieldSelector, "metadata.name=fleetcache-history") {
		return nil
	}
	resource := r.Key.Resource.GroupResource().String()
	e.mu.Lock()
	e.questions[resource]++
	before := e.before
	e.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(ctx, resource)
}

// asked returns how often each resource's informer has asked the history
// question since the last call.
func (e *estate) asked() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	questions := e.questions
	e.questions = map[string]int{}
	return questions
}

// answer has a function answer questions in place of the server.
func (e *estate) answer(before func(ctx context.Context, resource string) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.before = before
}

// first returns a function that fails for the first question alone.
func first(fails func(ctx context.Context, resource string) error) func(context.Context, string) error {
	var one sync.Once
	return func(ctx context.Context, resource string) (err error) {
		one.Do(func() { err = errFirst })
		if err != nil {
			return fails(ctx, resource)
		}
		return nil
	}
}

var errFirst = errors.New("it is the first")

// Ready implements informerpool.Source.
func (e *estate) Ready(ctx context.Context, cluster types.NamespacedName) (informerpool.Epoch, error) {
	return e.main.Ready(ctx, cluster)
}

// List implements informerpool.Source.
func (e *estate) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if err := e.asks(ctx, r); err != nil {
		return nil, err
	}
	return e.storage(r.Key).List(ctx, r)
}

// Watch implements informerpool.Source.
func (e *estate) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if err := e.asks(ctx, r); err != nil {
		return nil, err
	}
	return e.storage(r.Key).Watch(ctx, r)
}

// oneStorage are resources that Kubernetes keeps in one storage.
var oneStorage = []string{"pods", "services", "nodes", "deployments.apps", "leases.coordination.k8s.io"}

// estates runs a test with a pool on an estate, and a lease on each of some
// resources.
func estates(t *testing.T, resources []string, apart map[string]*pooltest.Server,
	change func(*informerpool.Options), test func(t *testing.T, e *estate, leases map[string]*informerpool.Lease),
) {
	t.Helper()
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, _ *informerpool.Pool) {
		e := &estate{main: s, apart: apart, questions: map[string]int{}}
		o := informerpool.Options{Source: e}
		if change != nil {
			change(&o)
		}
		p, err := informerpool.New(o)
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		leases := map[string]*informerpool.Lease{}
		for _, r := range resources {
			k := pooltest.Everything
			k.Resource = schema.ParseGroupResource(r).WithVersion("v1")
			leases[r] = pooltest.AcquireSynced(t, p, k)
		}
		pooltest.After(time.Minute)
		test(t, e, leases)
	})
}

// requireResumed requires that each informer follows its server, and has only
// ever listed once.
func requireResumed(t *testing.T, leases map[string]*informerpool.Lease) {
	t.Helper()
	for r, l := range leases {
		require.NoError(t, l.Trust(time.Minute), r)
		require.Zero(t, l.Status().Resyncs, r)
		require.Zero(t, l.Status().Rollbacks, r)
		require.NotZero(t, l.Status().Resumes, r)
	}
}

// total returns the sum of numbers by name.
func total(of map[string]int) (sum int) {
	for n := range maps.Values(of) {
		sum += n
	}
	return sum
}

// TestOneQuestionForAllKinds that one storage keeps, however long its answer
// takes.
func TestOneQuestionForAllKinds(t *testing.T) {
	for _, latency := range []time.Duration{0, 300 * time.Millisecond} {
		for _, paged := range []bool{false, true} {
			t.Run(fmt.Sprint(latency, " paged ", paged), func(t *testing.T) {
				estates(t, oneStorage, nil, func(o *informerpool.Options) { o.PagedLists = paged },
					func(t *testing.T, e *estate, leases map[string]*informerpool.Lease) {
						e.answer(func(context.Context, string) error {
							time.Sleep(latency)
							return nil
						})
						for range 10 {
							e.asked()
							e.main.Set(func(s *pooltest.Server) { s.Version += 10 })
							e.main.Cut(io.ErrUnexpectedEOF)
							pooltest.After(time.Second)
							requireResumed(t, leases)
							require.Equal(t, 1, total(e.asked()))
							pooltest.After(time.Minute)
						}
					})
			})
		}
	}
}

// TestOneQuestionForAllNamesOfAResource, which may have a storage of its own.
func TestOneQuestionForAllNamesOfAResource(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		leases := map[string]*informerpool.Lease{}
		for n := range 100 {
			k := pooltest.In(fmt.Sprint("ns", n%3))
			k.FieldSelector = fmt.Sprint("metadata.name=w", n)
			leases[k.FieldSelector] = pooltest.AcquireSynced(t, p, k)
		}
		pooltest.After(time.Minute)
		streams, watches := s.Count("stream"), s.Count("watch")
		s.Cut(io.ErrUnexpectedEOF)
		pooltest.After(time.Second)
		requireResumed(t, leases)
		require.Equal(t, 1, s.Count("stream")-streams, "a question by name is a streamed list")
		require.Equal(t, 100, s.Count("watch")-watches)
	})
}

// TestWhatMayBeStoredApartAsksForItself: each such resource, and the others
// together.
func TestWhatMayBeStoredApartAsksForItself(t *testing.T) {
	apart := []string{
		"events", "events.events.k8s.io", "widgets.example.com", "gadgets.example.com", "pods.metrics.k8s.io",
	}
	estates(t, append(apart, oneStorage...), nil, nil,
		func(t *testing.T, e *estate, leases map[string]*informerpool.Lease) {
			e.main.Cut(io.ErrUnexpectedEOF)
			pooltest.After(time.Second)
			requireResumed(t, leases)
			asked := e.asked()
			for _, r := range apart {
				require.Equal(t, 1, asked[r], r)
			}
			require.Equal(t, len(apart)+1, total(asked))
		})
}

// TestHazardOneStorageOfSeveralIsRestored: the versions of both are near each
// other, and the other one's reaches what was lost.
func TestHazardOneStorageOfSeveralIsRestored(t *testing.T) {
	for _, r := range []string{"events", "events.events.k8s.io", "widgets.example.com"} {
		t.Run(r, func(t *testing.T) {
			other := pooltest.NewServer()
			other.Version, other.Compacted = 300, 300
			resources := append([]string{r, "gadgets.example.com"}, oneStorage...)
			estates(t, resources, map[string]*pooltest.Server{r: other}, nil,
				func(t *testing.T, e *estate, leases map[string]*informerpool.Lease) {
					e.main.Set(func(s *pooltest.Server) { s.Version = 400 })
					other.Set(func(s *pooltest.Server) { s.Version, s.Compacted = 200, 200 })
					e.main.Cut(io.ErrUnexpectedEOF)
					other.Cut(io.ErrUnexpectedEOF)
					pooltest.After(time.Second)
					require.EqualValues(t, 1, leases[r].Status().Rollbacks)
					require.NoError(t, leases[r].Trust(0))
					delete(leases, r)
					requireResumed(t, leases)
				})
		})
	}
}

// TestHazardRestoredServerIsAheadOfSomeKinds: what they may resume from is no
// answer for the others.
func TestHazardRestoredServerIsAheadOfSomeKinds(t *testing.T) {
	for range 10 { // in any order
		estates(t, oneStorage, nil, nil, func(t *testing.T, e *estate, leases map[string]*informerpool.Lease) {
			e.main.Set(func(s *pooltest.Server) {
				for w := range s.Watchers {
					if w.Key.Resource.Resource == "nodes" {
						w.Push(pooltest.BookmarkFrame(300, false))
					}
				}
				s.Version = 300
			})
			synctest.Wait()
			e.main.Set(func(s *pooltest.Server) { s.Version = 200 })
			e.main.Cut(io.ErrUnexpectedEOF)
			pooltest.After(time.Second)
			require.EqualValues(t, 1, leases["nodes"].Status().Rollbacks)
			delete(leases, "nodes")
			requireResumed(t, leases)
		})
	}
}

// TestHazardAnswerFromBeforeARestore: one informer has the answer of the server,
// and loses its stream to the restore. The other one waits meanwhile, since the
// server was busy.
func TestHazardAnswerFromBeforeARestore(t *testing.T) {
	estates(t, []string{"pods", "nodes"}, nil, nil,
		func(t *testing.T, e *estate, leases map[string]*informerpool.Lease) {
			e.main.Set(func(s *pooltest.Server) {
				for w := range s.Watchers {
					w.Push(pooltest.BookmarkFrame(300, false))
				}
				s.Version = 300
				s.Refuse = func(k informerpool.Key) error {
					if k.Resource.Resource == "nodes" {
						return apierrors.NewTooManyRequests("busy", 3)
					}
					return nil
				}
			})
			synctest.Wait()
			e.main.Cut(io.ErrUnexpectedEOF)
			pooltest.After(time.Second)
			e.main.Cut(io.ErrUnexpectedEOF) // pods alone
			pooltest.After(time.Second)
			require.EqualValues(t, 2, leases["pods"].Status().Resumes)
			resumes := leases["nodes"].Status().Resumes
			e.main.Set(func(s *pooltest.Server) {
				s.Version = 200
				s.Refuse = func(k informerpool.Key) error {
					if k.Resource.Resource == "pods" {
						return pooltest.ErrUnreachable
					}
					return nil
				}
			})
			e.main.Cut(io.ErrUnexpectedEOF)
			pooltest.After(2 * time.Second)
			require.Equal(t, resumes, leases["nodes"].Status().Resumes)
			require.EqualValues(t, 1, leases["nodes"].Status().Rollbacks)
			require.NoError(t, leases["nodes"].Trust(0))
		})
}

// TestHazardEpochChangesWhileAQuestionIsUnderWay: nothing resumes in another
// cluster, whatever its version.
func TestHazardEpochChangesWhileAQuestionIsUnderWay(t *testing.T) {
	estates(t, oneStorage, nil, nil, func(t *testing.T, e *estate, leases map[string]*informerpool.Lease) {
		e.answer(first(func(context.Context, string) error {
			time.Sleep(500 * time.Millisecond)
			return nil
		}))
		e.main.Cut(io.ErrUnexpectedEOF)
		pooltest.After(400 * time.Millisecond)
		e.main.Become("b", 9000)
		pooltest.After(5 * time.Second)
		for r, l := range leases {
			require.Equal(t, informerpool.Epoch("b"), l.Epoch(), r)
			require.NoError(t, l.Trust(0), r)
			require.Zero(t, l.Status().Resumes, r)
		}
	})
}

// TestHazardOneQuestionHoldsUpOthers: the first one hangs, is refused, or meets
// a source that panics. The other kinds resume all the same, and soon.
func TestHazardOneQuestionHoldsUpOthers(t *testing.T) {
	for name, fails := range map[string]func(ctx context.Context, resource string) error{
		"hangs": func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"forbidden": func(_ context.Context, resource string) error {
			return apierrors.NewForbidden(schema.ParseGroupResource(resource), "", errors.New("no"))
		},
		"unreachable": func(context.Context, string) error { return pooltest.ErrUnreachable },
		"busy":        func(context.Context, string) error { return apierrors.NewTooManyRequests("no", 1) },
		"no storage": func(context.Context, string) error {
			return apierrors.NewInternalError(errors.New("no leader"))
		},
		"panics": func(context.Context, string) error { panic("broken") },
	} {
		for _, paged := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " paged ", paged), func(t *testing.T) {
				estates(t, oneStorage, nil, func(o *informerpool.Options) { o.PagedLists = paged },
					func(t *testing.T, e *estate, leases map[string]*informerpool.Lease) {
						failed := ""
						e.answer(first(func(ctx context.Context, resource string) error {
							failed = resource
							return fails(ctx, resource)
						}))
						e.main.Cut(io.ErrUnexpectedEOF)
						pooltest.After(1500 * time.Millisecond)
						require.NotEmpty(t, failed)
						first := leases[failed]
						delete(leases, failed)
						requireResumed(t, leases)
						pooltest.After(time.Minute)
						require.NoError(t, first.Trust(0))
						require.LessOrEqual(t, total(e.asked()), 2*len(oneStorage))
					})
			})
		}
	}
}

// TestHazardInformerEndsWhileItAsks: those that wait for the answer ask at once.
func TestHazardInformerEndsWhileItAsks(t *testing.T) {
	estates(t, oneStorage, nil, func(o *informerpool.Options) { o.Linger = 0 },
		func(t *testing.T, e *estate, leases map[string]*informerpool.Lease) {
			asks := make(chan string, 1)
			e.answer(first(func(ctx context.Context, resource string) error {
				asks <- resource
				<-ctx.Done()
				return ctx.Err()
			}))
			e.main.Cut(io.ErrUnexpectedEOF)
			r := <-asks
			pooltest.After(300 * time.Millisecond)
			leases[r].ReleaseNow()
			delete(leases, r)
			synctest.Wait()
			requireResumed(t, leases)
			require.Equal(t, 2, total(e.asked()))
		})
}

// TestHazardAnswerIsNoSignOfLife: after a long outage nothing changes, so that
// the watches carry nothing at first. Neither the answer to another informer nor
// an empty list counted.
func TestHazardAnswerIsNoSignOfLife(t *testing.T) {
	for _, paged := range []bool{false, true} {
		estates(t, oneStorage, nil, func(o *informerpool.Options) { o.PagedLists = paged },
			func(t *testing.T, e *estate, leases map[string]*informerpool.Lease) {
				e.main.Set(func(s *pooltest.Server) { s.NotReady = pooltest.Hang() })
				e.main.Cut(io.ErrUnexpectedEOF)
				pooltest.After(20 * time.Minute)
				e.main.Set(func(s *pooltest.Server) {
					close(s.NotReady)
					s.NotReady = nil
				})
				pooltest.After(time.Second)
				requireResumed(t, leases)
				for r, l := range leases {
					require.Less(t, time.Since(l.Status().LastSeen), 2*time.Second, r)
				}
			})
	}
}

// TestHazardVersionsAreGivenTwiceToSeveral is TestHazardVersionsAreGivenTwice
// for informers of several namespaces, which rely on one answer.
func TestHazardVersionsAreGivenTwiceToSeveral(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("one", "a", 1)
		before := pooltest.Copy(s)
		s.Put("ns", "b", 1)
		one, ns := pooltest.AcquireSynced(t, p, pooltest.In("one")), pooltest.AcquireSynced(t, p, pooltest.In("ns"))
		pooltest.After(time.Minute)
		s.Restore(before, 0)
		pooltest.After(5 * time.Second)
		s.Set(func(s *pooltest.Server) {
			for k, o := range s.Objects {
				o.Value = 7
				s.Objects[k] = o
			}
		})
		s.Cut(io.ErrUnexpectedEOF)
		pooltest.After(5 * time.Second)
		var w pooltest.Widget
		require.NoError(t, one.GetInto("one", "a", &w))
		require.Equal(t, 7, w.Spec.Value)
		require.Empty(t, pooltest.Contents(t, ns))
	})
}
