// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

const auditInterval = time.Hour

func audited(o *informerpool.Options) { o.AuditInterval = auditInterval }

// TestHazardServerDropsEvents: the server drops events but keeps sending
// bookmarks.
func TestHazardServerDropsEvents(t *testing.T) {
	for name, server := range map[string]func(*pooltest.Server){
		"exact": func(*pooltest.Server) {}, "inexact": func(s *pooltest.Server) { s.Inexact = true },
		"compacted": func(s *pooltest.Server) { s.Compacted, s.Log = 1<<40, nil },
	} {
		t.Run(name, func(t *testing.T) {
			var reported []informerpool.Key
			pooltest.Bubble(t, func(o *informerpool.Options) {
				audited(o)
				o.PageSize = 2
				o.OnRollback = func(k informerpool.Key) { reported = append(reported, k) }
			}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				for i := range 5 {
					s.Put("ns", fmt.Sprint("o", i), 1)
				}
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.NewRecorder()
				r.Epochs = true
				pooltest.Subscribe(t, p, l, r)
				synctest.Wait()
				r.Take()
				s.Set(func(s *pooltest.Server) { s.Deaf = true })
				s.Put("ns", "o0", 2)
				s.Delete("ns", "o1")
				s.Put("ns", "new", 1)
				s.Set(func(s *pooltest.Server) { s.Deaf = false })
				s.Set(server)
				s.Speak(60)
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
				require.Equal(t, s.State(nil), r.State())
				require.Len(t, r.Take(), 3)
				require.Equal(t, []informerpool.Key{pooltest.Everything}, reported)
				require.EqualValues(t, 1, p.Totals().AuditDifferences)
				require.NoError(t, l.Trust(0))
				r.RequireSound(t)
			})
		})
	}
}

// TestHazardRollbackThatIsOvertaken: the new history has passed the informer's
// version before the informer asks the history question.
func TestHazardRollbackThatIsOvertaken(t *testing.T) {
	pooltest.Bubble(t, audited, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "kept", 1)
		before := pooltest.Copy(s)
		s.Put("ns", "lost", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.Set(func(s *pooltest.Server) {
			s.Objects, s.Version, s.Log = before.Objects, before.Version, nil
			for w := range s.Watchers {
				w.End(io.ErrUnexpectedEOF)
			}
			clear(s.Watchers)
		})
		for i := range 10 {
			s.Put("ns", fmt.Sprint("other", i), 1)
		}
		s.Speak(60)
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	})
}

// TestHazardOvertakenRollbackRepeatsAVersion: an object has the version of its
// undone state again, so that the audit of an informer that has no other object
// sees no difference. What an audit or a list of another informer of the
// resource finds concerns it as well.
func TestHazardOvertakenRollbackRepeatsAVersion(t *testing.T) {
	for finds, listed := range map[string]bool{"an audit": false, "a list": true} {
		t.Run(finds, func(t *testing.T) {
			pooltest.Bubble(t, audited, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns1", "one", 1)
				before := pooltest.Copy(s)
				s.Put("ns1", "one", 2)
				s.Put("ns", "lost", 1)
				narrow := pooltest.AcquireSynced(t, p, pooltest.In("ns1"))
				wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, narrow)
				synctest.Wait()
				r.Take()
				s.Set(func(s *pooltest.Server) {
					s.Objects, s.Version, s.Log = before.Objects, before.Version, nil
					for w := range s.Watchers {
						w.End(io.ErrUnexpectedEOF)
					}
					clear(s.Watchers)
					s.Refuse = func(k informerpool.Key) error {
						if k != pooltest.Everything || !listed {
							return nil
						}
						listed = false
						return apierrors.NewResourceExpired("too old")
					}
				})
				s.Put("ns1", "one", 3)
				s.Put("ns", "other", 1)
				for i := range 10 {
					s.Put("ns", fmt.Sprint("other", i), 1)
				}

				s.Speak(60)
				require.Equal(t, s.State(nil), pooltest.Contents(t, wide))
				var one pooltest.Widget
				require.NoError(t, narrow.GetInto("ns1", "one", &one))
				require.Equal(t, 3, one.Spec.Value)
				require.Equal(t, []string{"Updated ns1/one@102"}, r.Take())
			})
		})
	}
}

// TestHazardRollbackThatOneInformerMeets: the list of one informer shows that
// the history went back. Another informer of the resource, whose only object
// has the version of its undone state again, meets nothing that contradicts it.
func TestHazardRollbackThatOneInformerMeets(t *testing.T) {
	pooltest.Bubble(t, audited, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns1", "one", 1)
		s.Put("ns", "back", 1)
		before := pooltest.Copy(s)
		s.Put("ns1", "one", 2)
		s.Put("ns", "back", 2)
		narrow := pooltest.AcquireSynced(t, p, pooltest.In("ns1"))
		wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		pooltest.Subscribe(t, p, narrow, r)
		synctest.Wait()
		r.Take()
		refuse := true
		s.Set(func(s *pooltest.Server) {
			s.Objects, s.Version, s.Log = before.Objects, before.Version, nil
			for w := range s.Watchers {
				w.End(io.ErrUnexpectedEOF)
			}
			clear(s.Watchers)
			s.Refuse = func(k informerpool.Key) error {
				if k != pooltest.Everything || !refuse {
					return nil
				}
				refuse = false
				return apierrors.NewResourceExpired("too old")
			}
		})
		s.Put("ns1", "one", 3)
		for i := range 10 {
			s.Put("ns", fmt.Sprint("other", i), 1)
		}

		s.Speak(1)
		require.Equal(t, s.State(nil), pooltest.Contents(t, wide))
		require.EqualValues(t, 1, wide.Status().Rollbacks)
		var one pooltest.Widget
		require.NoError(t, narrow.GetInto("ns1", "one", &one))
		require.Equal(t, 3, one.Spec.Value)
		require.Equal(t, []string{"Updated ns1/one@103"}, r.Take())
	})
}

// TestAuditOfWhatIsEqualChangesNothing: the audit causes no event, reads no
// body, and requests little.
func TestAuditOfWhatIsEqualChangesNothing(t *testing.T) {
	for _, inexact := range []bool{false, true} {
		t.Run(fmt.Sprint("inexact ", inexact), func(t *testing.T) {
			decoded := 0
			pooltest.Bubble(t, func(o *informerpool.Options) {
				audited(o)
				o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{
					pooltest.Widgets.GroupResource(): func(*unstructured.Unstructured) error { decoded++; return nil },
				}
			}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Inexact = inexact
				for i := range 50 {
					s.Put("ns", fmt.Sprint("o", i), 1)
				}
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.Record(t, p, l)
				synctest.Wait()
				r.Take()
				status := l.Status()
				s.Speak(4 * 60)
				audits := p.Totals().Audits
				require.GreaterOrEqual(t, audits, int64(4))
				require.LessOrEqual(t, audits, int64(8))
				require.Empty(t, r.Take())
				require.Equal(t, 50, decoded)
				require.Equal(t, status.Watches, l.Status().Watches)
				require.LessOrEqual(t, int64(s.Count("audit")), 2*audits)
			})
		})
	}
}

// TestAuditsOfWhatChangesFindNothing: changes on their way are no difference.
func TestAuditsOfWhatChangesFindNothing(t *testing.T) {
	for _, inexact := range []bool{false, true} {
		t.Run(fmt.Sprint("inexact ", inexact), func(t *testing.T) {
			pooltest.Bubble(t, func(o *informerpool.Options) { o.AuditInterval = time.Minute; o.PageSize = 3 }, func(
				t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Inexact = inexact
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				requireNothingFound(t, s, p, l, 3000, time.Second)
			})
		})
	}
}

// requireNothingFound changes objects continuously, and fails if an audit finds
// a difference in a server that is merely busy.
func requireNothingFound(t *testing.T, s *pooltest.Server, p *informerpool.Pool, l *informerpool.Lease, changes int,
	pause time.Duration) {
	t.Helper()
	for i := range changes {
		s.Put("ns", fmt.Sprint("o", i%20), i)
		s.Delete("ns", fmt.Sprint("o", (i*7)%20))
		pooltest.After(pause)
	}
	pooltest.After(time.Minute)
	require.Equal(t, s.State(nil), pooltest.Contents(t, l))
	require.Zero(t, p.Totals().AuditDifferences)
	require.Zero(t, l.Status().Rollbacks)
	require.Greater(t, p.Totals().Audits, int64(10))
}

// TestAuditSoon: the audit comes within minutes, but not while the cluster is
// away.
func TestAuditSoon(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		s.Set(func(s *pooltest.Server) { s.Deaf = true })
		s.Put("ns", "a", 2)
		s.SendBookmark()
		synctest.Wait()
		p.AuditSoon(pooltest.Everything.Cluster)
		p.AuditSoon(types.NamespacedName{Name: "unknown"})
		s.Speak(5)
		synctest.Wait()
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		p.AuditSoon(pooltest.Everything.Cluster)
		s.FailWith(pooltest.ErrUnreachable)
		s.Cut(io.ErrUnexpectedEOF)
		pooltest.After(6 * time.Minute)
		require.Zero(t, p.Totals().AuditFailures, "what is known to be broken is not audited")
	})
}

// TestAuditsAreSpreadAndWaitForNobody: thousands of informers are not audited
// at once, and no list waits for an audit.
func TestAuditsAreSpreadAndWaitForNobody(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) { audited(o); o.ListConcurrency = 1 }, func(t *testing.T,
		s *pooltest.Server, p *informerpool.Pool) {
		informers := repeat.Times(2000)
		for i := range informers {
			pooltest.Acquire(t, p, pooltest.In(fmt.Sprint("ns", i)))
		}
		synctest.Wait()
		for last := 0; last < informers/20; {
			s.Speak(1)
			n := s.Count("audit")
			require.Less(t, n-last, informers/5, "in one minute")
			last = n
		}
		hung := pooltest.Hang()
		s.Set(func(s *pooltest.Server) {
			s.Fail = func(verb string) error {
				if verb == "audit" {
					<-hung
				}
				return nil
			}
		})
		s.Speak(2)
		began := time.Now()
		pooltest.AcquireSynced(t, p, pooltest.In("fresh"))
		require.Zero(t, time.Since(began), "audits that hang hold nothing that a list needs")
		close(hung)
	})
}

// TestNoAudit: a negative interval disables audits.
func TestNoAudit(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) { o.AuditInterval = -1 }, func(t *testing.T, s *pooltest.Server,
		p *informerpool.Pool) {
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		p.AuditSoon(pooltest.Everything.Cluster)
		s.Speak(24 * 60)
		require.Zero(t, s.Count("audit"))
		require.NoError(t, p.Close(context.Background()))
	})
}

// oddAudits is a server whose lists for audits show an object named odd in a
// form that cannot be read.
type oddAudits struct {
	*pooltest.Server

	odd string
}

func (s *oddAudits) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	body, err := s.Server.List(ctx, r)
	if err != nil || !r.MetadataOnly {
		return body, err
	}
	doc, err := io.ReadAll(body)
	at := bytes.Index(doc, []byte(`"items":[`)) + len(`"items":[`)
	items := strings.Split(strings.TrimSuffix(string(doc[at:]), "]}"), `,{"apiVersion"`)
	for i, item := range items {
		if strings.Contains(item, `"name":"odd"`) {
			items[i] = s.odd
		} else if i > 0 {
			items[i] = `{"apiVersion"` + item
		}
	}
	return io.NopCloser(strings.NewReader(string(doc[:at]) + strings.Join(items, ",") + "]}")), err
}

// TestHazardOneObjectEndsEveryAudit: a user who can create one unreadable
// object must not be able to keep other differences from being found.
func TestHazardOneObjectEndsEveryAudit(t *testing.T) {
	for name, odd := range map[string]string{
		"too large": `{"metadata":{"namespace":"ns","name":"odd","uid":"u","resourceVersion":"1",` +
			`"annotations":{"a":"` + strings.Repeat("x", 1<<20) + `"}}}`,
		"without a name":    `{"metadata":7}`,
		"of the wrong type": `{"metadata":{"namespace":"ns","name":"odd","labels":7}}`,
		"not JSON":          `{"metadata":{"namespace":"ns","name":"odd","labels":{"a" 7}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			source := &oddAudits{odd: odd}
			pooltest.Bubble(t, func(o *informerpool.Options) {
				audited(o)
				o.MaxObjectBytes, o.PageSize = 1<<16, 2
				source.Server = o.Source.(*pooltest.Server)
				o.Source = source
			}, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				for i := range 5 {
					s.Put("ns", fmt.Sprint("o", i), 1)
				}
				s.Put("ns", "odd", 1) // in the state that the informer has
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				s.Speak(2 * 60)
				require.Zero(t, p.Totals().AuditFailures, "%v", l.Status().LastError)
				require.Zero(t, p.Totals().AuditDifferences)
				s.Set(func(s *pooltest.Server) { s.Deaf = true })
				s.Put("ns", "o4", 2)
				s.Set(func(s *pooltest.Server) { s.Deaf = false })
				s.Speak(2 * 60)
				require.Equal(t, s.State(nil), pooltest.Contents(t, l))
				require.EqualValues(t, 1, p.Totals().AuditDifferences)
			})
		})
	}
}

// TestHazardUnavailableServerComesBackAhead: no other informer shows whether
// the rest of the cluster was reachable, so the informer is audited as after an
// outage.
func TestHazardUnavailableServerComesBackAhead(t *testing.T) {
	for _, code := range []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
				s.Put("ns", "old", 1)
				l := pooltest.AcquireSynced(t, p, pooltest.Everything)
				r := pooltest.NewRecorder()
				r.Epochs = true
				pooltest.Subscribe(t, p, l, r)
				for i := range 3 {
					away := &apierrors.StatusError{
						ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code)}}
					s.FailWith(away)
					s.Cut(io.ErrUnexpectedEOF)
					s.Set(func(s *pooltest.Server) {
						clear(s.Objects)
						s.Log = nil
					})
					s.Put("ns", fmt.Sprint("new", i), 1)
					pooltest.After(5 * time.Second)
					s.Heal()
					pooltest.After(5*time.Minute + 30*time.Second)
					require.Equal(t, s.State(nil), pooltest.Contents(t, l))
					require.Equal(t, s.State(nil), r.State())
				}
				r.RequireSound(t)
			})
		})
	}
}
