// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	pod    = gvkOf("", "v1", "Pod")
	widget = gvkOf("example.org", "v1", "Widget")
)

func requireNoMatch(t *testing.T, err error) {
	t.Helper()
	require.True(t, meta.IsNoMatchError(err), "%v", err)
}

func TestKnownKindsAreAnsweredWithoutRequests(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		c := newCluster(t)
		c.legacy = legacy
		m := c.mapper(NewTable())
		_, ok := m.Cached(pod)
		require.False(t, ok)
		mapping, err := m.ResourceFor(t.Context(), pod)
		require.NoError(t, err)
		require.Equal(t, Mapping{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Singular: "pod",
			Namespaced: true,
		}, mapping)
		c.asked()

		mapping, ok = m.Cached(gvkOf("", "v1", "Node"))
		require.True(t, ok)
		require.False(t, mapping.Namespaced)
		mapping, err = m.ResourceFor(t.Context(), gvkOf("autoscaling", "", "HorizontalPodAutoscaler"))
		require.NoError(t, err)
		require.Equal(t, "v2", mapping.Resource.Version, "preferred version")
		kind, err := m.KindFor(t.Context(),
			schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
		require.NoError(t, err)
		require.Equal(t, gvkOf("apps", "v1", "Deployment"), kind)
		_, ok = m.Cached(gvkOf("apps", "v1", "SubDeployment"))
		require.False(t, ok, "subresources are no kinds")
		require.Empty(t, c.asked())
	}
}

func TestFleetSharesDocumentsByETag(t *testing.T) {
	table := NewTable()
	first := newCluster(t)
	_, err := first.mapper(table).ResourceFor(t.Context(), pod)
	require.NoError(t, err)

	mappers := []*Mapper{}
	for range 10 {
		c := newCluster(t)
		m := c.mapper(table)
		_, err := m.ResourceFor(t.Context(), pod)
		require.NoError(t, err)
		require.Equal(t, []string{"/api 304", "/apis 304"}, c.asked())
		mappers = append(mappers, m)
	}
	require.Equal(t, 2, table.Len())

	odd := newCluster(t)
	odd.serve(served("example.org", versioned("v1", resourceOf("widgets", "Widget", true))))
	m := odd.mapper(table)
	_, err = m.ResourceFor(t.Context(), widget)
	require.NoError(t, err)
	require.Equal(t, []string{"/api 304", "/apis 200"}, odd.asked())
	require.Equal(t, 3, table.Len())
	require.NoError(t, m.Refresh(t.Context()))
	require.Equal(t, []string{"/api 304", "/apis 304"}, odd.asked())
	runtime.KeepAlive(mappers)
}

func TestForgottenMappersLeaveNothingInTheTable(t *testing.T) {
	table := NewTable()
	for range 3 {
		c := newCluster(t)
		_, err := c.mapper(table).ResourceFor(t.Context(), pod)
		require.NoError(t, err)
	}
	for table.Len() > 0 { // cleanups run on a goroutine of the runtime
		runtime.GC()
		runtime.Gosched()
	}
	require.Empty(t, table.etags)
}

func TestClusterCannotPoisonOthers(t *testing.T) {
	table := NewTable()
	good := newCluster(t)
	resp, err := good.do(request(t, apisPath))
	require.NoError(t, err)

	hostile := newCluster(t) // claims the ETag that good documents have
	hostile.serve(served("apps", versioned("v1", resourceOf("secrets", "Deployment", true))))
	hostile.etags[apisPath] = resp.Header.Get("ETag")
	lied := hostile.mapper(table)
	mapping, err := lied.ResourceFor(t.Context(), gvkOf("apps", "v1", "Deployment"))
	require.NoError(t, err)
	require.Equal(t, "secrets", mapping.Resource.Resource)

	good.asked()
	mapping, err = good.mapper(table).ResourceFor(t.Context(), gvkOf("apps", "v1", "Deployment"))
	require.NoError(t, err)
	require.Equal(t, "deployments", mapping.Resource.Resource)
	require.Equal(t, []string{"/api 304", "/apis 200"}, good.asked())
	runtime.KeepAlive(lied)
}

func request(t *testing.T, path string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cluster.invalid"+path, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", accept)
	return req
}

func TestUnknownKindCostsOneDiscoveryPerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		m := c.mapper(NewTable())
		for range 100 {
			_, err := m.ResourceFor(t.Context(), widget)
			requireNoMatch(t, err)
			require.ErrorContains(t, err, "example.org")
			require.ErrorContains(t, err, "Widget")
			_, err = m.KindFor(t.Context(),
				schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"})
			requireNoMatch(t, err)
		}
		require.Len(t, c.asked(), 2)

		c.serve(served("example.org", versioned("v1", resourceOf("widgets", "Widget", true))))
		time.Sleep(10*time.Second - 1)
		_, err := m.ResourceFor(t.Context(), widget)
		requireNoMatch(t, err)
		time.Sleep(time.Nanosecond)
		_, err = m.ResourceFor(t.Context(), widget)
		require.NoError(t, err)
		require.Equal(t, []string{"/api 304", "/apis 200"}, c.asked())
	})
}

func TestInvalidateMakesNextMissAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		m := c.mapper(NewTable())
		_, err := m.ResourceFor(t.Context(), widget)
		requireNoMatch(t, err)
		c.serve(served("example.org", versioned("v1", resourceOf("widgets", "Widget", true))))
		c.asked()
		m.Invalidate()
		_, err = m.ResourceFor(t.Context(), pod)
		require.NoError(t, err)
		require.Empty(t, c.asked(), "a hit asks nothing")
		_, err = m.ResourceFor(t.Context(), widget)
		require.NoError(t, err)
		require.Len(t, c.asked(), 2)
	})
}

func TestRefreshNoticesRemovedKinds(t *testing.T) {
	c := newCluster(t)
	m := c.mapper(NewTable())
	deployment := gvkOf("apps", "v1", "Deployment")
	_, err := m.ResourceFor(t.Context(), deployment)
	require.NoError(t, err)
	c.serve()
	require.NoError(t, m.Refresh(t.Context()))
	_, err = m.ResourceFor(t.Context(), deployment)
	requireNoMatch(t, err)
}

func TestPartialFailureForgetsNothing(t *testing.T) {
	nodeMetrics := gvkOf("metrics.k8s.io", "v1beta1", "NodeMetrics")
	c := newCluster(t)
	apps := c.groups[0]
	c.serve(apps, served("metrics.k8s.io", versioned("v1beta1", resourceOf("nodes", "NodeMetrics", false))))
	m := c.mapper(NewTable())
	_, err := m.ResourceFor(t.Context(), nodeMetrics)
	require.NoError(t, err)

	c.serve(apps, served("metrics.k8s.io", stale("v1beta1")))
	for range 2 { // a failure is remembered more than once
		require.NoError(t, m.Refresh(t.Context()))
		mapping, err := m.ResourceFor(t.Context(), nodeMetrics)
		require.NoError(t, err)
		require.Equal(t, "nodes", mapping.Resource.Resource)
		_, err = m.ResourceFor(t.Context(), gvkOf("metrics.k8s.io", "v1beta1", "PodMetrics"))
		require.ErrorIs(t, err, ErrUnavailable, "it may have come meanwhile")
	}
	c.serve(apps)
	require.NoError(t, m.Refresh(t.Context()))
	_, err = m.ResourceFor(t.Context(), nodeMetrics)
	requireNoMatch(t, err)
}

func TestKindOfUnavailableGroupIsNotDenied(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		c := newCluster(t)
		c.legacy = legacy
		c.serve(served("metrics.k8s.io", stale("v1beta1")))
		c.status[apisPath+"/metrics.k8s.io/v1beta1"] = http.StatusServiceUnavailable
		m := c.mapper(NewTable())
		_, err := m.ResourceFor(t.Context(), gvkOf("metrics.k8s.io", "v1beta1", "NodeMetrics"))
		require.ErrorIs(t, err, ErrUnavailable)
		require.False(t, meta.IsNoMatchError(err))
		_, err = m.ResourceFor(t.Context(), pod)
		require.NoError(t, err)
	}
}

func TestFailedDiscoveryKeepsWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		m := c.mapper(NewTable())
		_, err := m.ResourceFor(t.Context(), pod)
		require.NoError(t, err)
		c.asked()
		c.status[apisPath] = http.StatusServiceUnavailable
		m.Invalidate()
		for range 50 {
			_, err = m.ResourceFor(t.Context(), widget)
			require.Error(t, err)
			require.False(t, meta.IsNoMatchError(err))
			require.True(t, apierrors.IsServiceUnavailable(err), "%v", err)
			require.NotContains(t, err.Error(), "canary")
		}
		require.Equal(t, []string{"/api 304", "/apis 503"}, c.asked())
		_, err = m.ResourceFor(t.Context(), pod)
		require.NoError(t, err)
		delete(c.status, apisPath)
		time.Sleep(errorTTL)
		_, err = m.ResourceFor(t.Context(), widget)
		requireNoMatch(t, err)
	})
}

func TestConcurrentQuestionsShareOneDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.hold = make(chan struct{})
		m := c.mapper(NewTable())
		results := make(chan error, 100)
		for range 100 {
			go func() {
				_, err := m.ResourceFor(t.Context(), pod)
				results <- err
			}()
		}
		synctest.Wait()
		_, ok := m.Cached(pod) // no lock is held over the request
		require.False(t, ok)
		close(c.hold)
		for range 100 {
			require.NoError(t, <-results)
		}
		require.Len(t, c.asked(), 2)
	})
}

func TestCallerThatGivesUpLeavesDiscoveryToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.hold = make(chan struct{})
		m := c.mapper(NewTable())
		impatient, giveUp := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := m.ResourceFor(impatient, pod)
			first <- err
		}()
		synctest.Wait()
		go func() {
			_, err := m.ResourceFor(t.Context(), pod)
			second <- err
		}()
		synctest.Wait()
		giveUp()
		require.ErrorIs(t, <-first, context.Canceled)
		close(c.hold)
		require.NoError(t, <-second)
	})
}

func TestHungDiscoveryEndsWithTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.hold = make(chan struct{})
		m := c.mapper(NewTable())
		start := time.Now()
		_, err := m.RESTMapper().RESTMapping(widget.GroupKind())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, defaultTimeout, time.Since(start))
	})
}

func TestExtensionServerWithoutCoreGroup(t *testing.T) {
	c := newCluster(t)
	c.status[corePath] = http.StatusNotFound
	m := c.mapper(NewTable())
	_, err := m.ResourceFor(t.Context(), gvkOf("apps", "v1", "Deployment"))
	require.NoError(t, err)
	_, err = m.ResourceFor(t.Context(), pod)
	requireNoMatch(t, err)
}

func TestHostileDiscoveryIsBounded(t *testing.T) {
	answer := func(contentType, body string) func(*http.Request) (*http.Response, error) {
		return func(req *http.Request) (*http.Response, error) {
			c := newCluster(t)
			resp, err := c.do(req)
			resp.Header.Set("Content-Type", contentType)
			resp.Body = http.NoBody
			if body != "" {
				resp.Body = readCloser{strings.NewReader(body)}
			}
			return resp, err
		}
	}
	const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	endless := `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"` + strings.Repeat("a", maxBody) + `"}}]}`
	many := `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"a"},` +
		`"versions":[{"version":"v1","resources":[` +
		strings.Repeat(`{"resource":"as","responseKind":{"kind":"A"}},`, maxResources) +
		`{"resource":"as","responseKind":{"kind":"A"}}]}]}]}`
	nothings := strings.Repeat(",{}", 1_000_000)
	for name, test := range map[string]struct {
		contentType, body string
		want              error
	}{
		"too long":           {aggregatedType, endless, ErrTooLarge},
		"too many resources": {aggregatedType, many, ErrTooLarge},
		"login page":         {"text/html", "<html>canary</html>", ErrMalformed},
		"cut off":            {aggregatedType, `{"kind":"APIGroupDiscoveryList","items":[{"canary`, ErrMalformed},
		"empty":              {"application/json", "", ErrMalformed},
		"another kind":       {aggregatedType, `{"kind":"Status","message":"canary"}`, ErrMalformed},
		"too many versions": {"application/json",
			`{"kind":"APIVersions","versions":["v1"` + strings.Repeat(`,"v1"`, maxVersions) + `]}`, ErrTooLarge},
		"bottomless document": {aggregatedType, strings.Repeat(`{"items":[`, 100000), ErrTooLarge},
		"nothings": {aggregatedType,
			`{"kind":"APIGroupDiscoveryList","items":[{"versions":[{"resources":[{}` + nothings + `]}]}]}`,
			ErrTooLarge},
		"nothings, legacy": {"application/json",
			`{"kind":"APIVersions","versions":[""` + strings.ReplaceAll(nothings, "{}", `""`) + `]}`, ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewTable().NewMapper(answer(test.contentType, test.body), "https://cluster.invalid", Options{})
			_, err := m.ResourceFor(t.Context(), pod)
			require.ErrorIs(t, err, test.want)
			require.NotContains(t, err.Error(), "canary")
		})
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// TestHazardHalfADiscoveryIsKept: kinds on the path that answered are known to
// exist or not to exist, whatever happened to the other path.
func TestHazardHalfADiscoveryIsKept(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.status[apisPath] = status
			m := c.mapper(NewTable())
			_, err := m.ResourceFor(t.Context(), pod)
			require.NoError(t, err)
			_, err = m.ResourceFor(t.Context(), gvkOf("", "v1", "Nothing"))
			requireNoMatch(t, err)
			_, err = m.ResourceFor(t.Context(), widget)
			require.Error(t, err)
			require.False(t, meta.IsNoMatchError(err))
			delete(c.status, apisPath)
			time.Sleep(errorTTL)
			_, err = m.ResourceFor(t.Context(), gvkOf("apps", "v1", "Deployment"))
			require.NoError(t, err)
		})
	}
}

// TestHazardKindOfTwoResourcesIsServedByTheOneThatCanBeRead: OpenShift's
// Template has two resources, of which the first can only be created.
func TestHazardKindOfTwoResourcesIsServedByTheOneThatCanBeRead(t *testing.T) {
	template := gvkOf("template.openshift.io", "v1", "Template")
	processed, true_ := resourceOf("processedtemplates", "Template", true), resourceOf("templates", "Template", true)
	processed.Verbs = []string{"create"}
	polled := resourceOf("componentstatuses", "ComponentStatus", false)
	polled.Verbs = []string{"get", "list"}
	for _, legacy := range []bool{false, true} {
		c := newCluster(t)
		c.legacy = legacy
		c.core = append(c.core[:0:0], served("", versioned("v1", polled)))
		c.serve(served("template.openshift.io", versioned("v1", processed, true_)),
			served("x", versioned("v1", resourceOf("others", "Thing", true), resourceOf("things", "Thing", true))))
		m := c.mapper(NewTable())
		mapping, err := m.ResourceFor(t.Context(), template)
		require.NoError(t, err)
		require.Equal(t, "templates", mapping.Resource.Resource)
		require.True(t, mapping.Can(Get|List|Watch))
		mapped, err := m.RESTMapper().RESTMapping(template.GroupKind(), "v1")
		require.NoError(t, err)
		require.Equal(t, "templates", mapped.Resource.Resource)
		mapping, err = m.ResourceFor(t.Context(), gvkOf("x", "v1", "Thing"))
		require.NoError(t, err)
		require.Equal(t, "things", mapping.Resource.Resource)
		mapping, err = m.ResourceFor(t.Context(), gvkOf("", "v1", "ComponentStatus"))
		require.NoError(t, err)
		require.True(t, mapping.Can(List))
		require.False(t, mapping.Can(Watch))
	}
}

// TestHazardDiscoveryHasAnAge: known kinds are checked again from time to time,
// and after a Reset nothing is known.
func TestHazardDiscoveryHasAnAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		table := NewTable()
		m := c.mapper(table)
		_, err := m.ResourceFor(t.Context(), pod)
		require.NoError(t, err)
		c.asked()
		time.Sleep(maxAge)
		for range 3 {
			_, err = m.ResourceFor(t.Context(), pod)
			require.NoError(t, err)
		}
		require.Equal(t, []string{"/api 304", "/apis 304"}, c.asked())
		time.Sleep(maxAge)
		c.status[corePath] = http.StatusServiceUnavailable
		_, err = m.ResourceFor(t.Context(), pod)
		require.NoError(t, err, "an old answer is better than none")

		m.Reset()
		require.Zero(t, table.Len())
		_, known := m.Cached(pod)
		require.False(t, known)
		_, err = m.ResourceFor(t.Context(), gvkOf("", "v1", "Widget")) // a Pod is presumed
		require.True(t, apierrors.IsServiceUnavailable(err), "%v", err)
	})
}
