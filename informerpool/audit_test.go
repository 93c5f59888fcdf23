// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

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
)

const auditInterval = time.Hour

func audited(o *informerpool.Options) { o.AuditInterval = auditInterval }

// speak makes a model server send a bookmark once a minute, as an API server
// does.
func (s *modelServer) speak(minutes int) {
	for range minutes {
		after(time.Minute)
		s.bookmark()
		synctest.Wait()
	}
}

// TestHazardServerDropsEvents: the server drops events but keeps sending
// bookmarks.
func TestHazardServerDropsEvents(t *testing.T) {
	for name, server := range map[string]func(*modelServer){
		"exact": func(*modelServer) {}, "inexact": func(s *modelServer) { s.inexact = true },
		"compacted": func(s *modelServer) { s.compacted, s.log = 1<<40, nil },
	} {
		t.Run(name, func(t *testing.T) {
			var reported []informerpool.Key
			bubble(t, func(o *informerpool.Options) {
				audited(o)
				o.PageSize = 2
				o.OnRollback = func(k informerpool.Key) { reported = append(reported, k) }
			}, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				for i := range 5 {
					s.put("ns", fmt.Sprint("o", i), 1)
				}
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				r.epochs = true
				subscribe(t, p, l, r)
				synctest.Wait()
				r.take()
				s.set(func(s *modelServer) { s.deaf = true })
				s.put("ns", "o0", 2)
				s.delete("ns", "o1")
				s.put("ns", "new", 1)
				s.set(func(s *modelServer) { s.deaf = false })
				s.set(server)
				s.speak(60)
				require.Equal(t, s.state(nil), contents(t, l))
				require.Equal(t, s.state(nil), r.told())
				require.Len(t, r.take(), 3)
				require.Equal(t, []informerpool.Key{everything}, reported)
				require.EqualValues(t, 1, p.Totals().AuditDifferences)
				require.NoError(t, l.Trust(0))
				r.requireSound(t)
			})
		})
	}
}

// TestHazardRollbackThatIsOvertaken: the new history has passed the informer's
// version before the informer asks the history question.
func TestHazardRollbackThatIsOvertaken(t *testing.T) {
	bubble(t, audited, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "kept", 1)
		before := snapshot(s)
		s.put("ns", "lost", 1)
		l := acquireSynced(t, p, everything)
		s.set(func(s *modelServer) {
			s.objects, s.rv, s.log = before.objects, before.rv, nil
			for w := range s.watchers {
				w.end(io.ErrUnexpectedEOF)
			}
			clear(s.watchers)
		})
		for i := range 10 {
			s.put("ns", fmt.Sprint("other", i), 1)
		}
		s.speak(60)
		require.Equal(t, s.state(nil), contents(t, l))
	})
}

// TestAuditOfWhatIsEqualChangesNothing: the audit causes no event, reads no
// body, and requests little.
func TestAuditOfWhatIsEqualChangesNothing(t *testing.T) {
	for _, inexact := range []bool{false, true} {
		t.Run(fmt.Sprint("inexact ", inexact), func(t *testing.T) {
			decoded := 0
			bubble(t, func(o *informerpool.Options) {
				audited(o)
				o.Transforms = map[schema.GroupResource]informerpool.TransformFunc{
					widgets.GroupResource(): func(*unstructured.Unstructured) error { decoded++; return nil },
				}
			}, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.inexact = inexact
				for i := range 50 {
					s.put("ns", fmt.Sprint("o", i), 1)
				}
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				subscribe(t, p, l, r)
				synctest.Wait()
				r.take()
				status := l.Status()
				s.speak(4 * 60)
				audits := p.Totals().Audits
				require.GreaterOrEqual(t, audits, int64(4))
				require.LessOrEqual(t, audits, int64(8))
				require.Empty(t, r.take())
				require.Equal(t, 50, decoded)
				require.Equal(t, status.Watches, l.Status().Watches)
				require.LessOrEqual(t, int64(s.count("audit")), 2*audits)
			})
		})
	}
}

// TestAuditsOfWhatChangesFindNothing: changes on their way are no difference.
func TestAuditsOfWhatChangesFindNothing(t *testing.T) {
	for _, inexact := range []bool{false, true} {
		t.Run(fmt.Sprint("inexact ", inexact), func(t *testing.T) {
			bubble(t, func(o *informerpool.Options) { o.AuditInterval = time.Minute; o.PageSize = 3 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.inexact = inexact
				l := acquireSynced(t, p, everything)
				requireNothingFound(t, s, p, l, 3000, time.Second)
			})
		})
	}
}

// requireNothingFound changes objects continuously, and fails if an audit finds
// a difference in a server that is merely busy.
func requireNothingFound(t *testing.T, s *modelServer, p *informerpool.Pool, l *informerpool.Lease, changes int, pause time.Duration) {
	t.Helper()
	for i := range changes {
		s.put("ns", fmt.Sprint("o", i%20), i)
		s.delete("ns", fmt.Sprint("o", (i*7)%20))
		after(pause)
	}
	after(time.Minute)
	require.Equal(t, s.state(nil), contents(t, l))
	require.Zero(t, p.Totals().AuditDifferences)
	require.Zero(t, l.Status().Rollbacks)
	require.Greater(t, p.Totals().Audits, int64(10))
}

// TestAuditSoon: the audit comes within minutes, but not while the cluster is
// away.
func TestAuditSoon(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		s.set(func(s *modelServer) { s.deaf = true })
		s.put("ns", "a", 2)
		s.bookmark()
		synctest.Wait()
		p.AuditSoon(everything.Cluster)
		p.AuditSoon(types.NamespacedName{Name: "unknown"})
		s.speak(5)
		synctest.Wait()
		require.Equal(t, s.state(nil), contents(t, l))
		p.AuditSoon(everything.Cluster)
		s.set(func(s *modelServer) { s.fail = func(string) error { return errUnreachable } })
		s.cut(io.ErrUnexpectedEOF)
		after(6 * time.Minute)
		require.Zero(t, p.Totals().AuditFailures, "what is known to be broken is not audited")
	})
}

// TestAuditsAreSpreadAndWaitForNobody: thousands of informers are not audited
// at once, and no list waits for an audit.
func TestAuditsAreSpreadAndWaitForNobody(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { audited(o); o.ListConcurrency = 1 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		const informers = 2000
		for i := range informers {
			acquire(t, p, in(fmt.Sprint("ns", i)))
		}
		synctest.Wait()
		for most, last := 0, 0; most < 100; {
			s.speak(1)
			n := s.count("audit")
			require.Less(t, n-last, informers/5, "in one minute")
			last = n
			if most = n; n >= 100 {
				break
			}
		}
		hung := hang()
		s.set(func(s *modelServer) {
			s.fail = func(verb string) error {
				if verb == "audit" {
					<-hung
				}
				return nil
			}
		})
		s.speak(2)
		began := time.Now()
		acquireSynced(t, p, in("fresh"))
		require.Zero(t, time.Since(began), "audits that hang hold nothing that a list needs")
		close(hung)
	})
}

// TestNoAudit: a negative interval disables audits.
func TestNoAudit(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.AuditInterval = -1 }, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		acquireSynced(t, p, everything)
		p.AuditSoon(everything.Cluster)
		s.speak(24 * 60)
		require.Zero(t, s.count("audit"))
		require.NoError(t, p.Close(context.Background()))
	})
}

// oddAudits is a server whose lists for audits show an object named odd in a
// form that cannot be read.
type oddAudits struct {
	*modelServer

	odd string
}

func (s *oddAudits) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	body, err := s.modelServer.List(ctx, r)
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
		"too large":         `{"metadata":{"namespace":"ns","name":"odd","uid":"u","resourceVersion":"1","annotations":{"a":"` + strings.Repeat("x", 1<<20) + `"}}}`,
		"without a name":    `{"metadata":7}`,
		"of the wrong type": `{"metadata":{"namespace":"ns","name":"odd","labels":7}}`,
		"not JSON":          `{"metadata":{"namespace":"ns","name":"odd","labels":{"a" 7}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			source := &oddAudits{odd: odd}
			bubble(t, func(o *informerpool.Options) {
				audited(o)
				o.MaxObjectBytes, o.PageSize = 1<<16, 2
				source.modelServer = o.Source.(*modelServer)
				o.Source = source
			}, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				for i := range 5 {
					s.put("ns", fmt.Sprint("o", i), 1)
				}
				s.put("ns", "odd", 1) // in the state that the informer has
				l := acquireSynced(t, p, everything)
				s.speak(2 * 60)
				require.Zero(t, p.Totals().AuditFailures, "%v", l.Status().LastError)
				require.Zero(t, p.Totals().AuditDifferences)
				s.set(func(s *modelServer) { s.deaf = true })
				s.put("ns", "o4", 2)
				s.set(func(s *modelServer) { s.deaf = false })
				s.speak(2 * 60)
				require.Equal(t, s.state(nil), contents(t, l))
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
			bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
				s.put("ns", "old", 1)
				l := acquireSynced(t, p, everything)
				r := newRecorder()
				r.epochs = true
				subscribe(t, p, l, r)
				for i := range 3 {
					away := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code)}}
					s.set(func(s *modelServer) {
						s.fail = func(string) error { return away }
					})
					s.cut(io.ErrUnexpectedEOF)
					s.set(func(s *modelServer) {
						clear(s.objects)
						s.log = nil
					})
					s.put("ns", fmt.Sprint("new", i), 1)
					after(5 * time.Second)
					s.set(func(s *modelServer) { s.fail = nil })
					after(5*time.Minute + 30*time.Second)
					require.Equal(t, s.state(nil), contents(t, l))
					require.Equal(t, s.state(nil), r.told())
				}
				r.requireSound(t)
			})
		})
	}
}
