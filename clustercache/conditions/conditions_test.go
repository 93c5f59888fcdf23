// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/conditions"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
)

var (
	east   = client.ObjectKey{Namespace: "fleet", Name: "east"}
	west   = client.ObjectKey{Namespace: "fleet", Name: "west"}
	config = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	widget = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

	// The pattern and the bounds are those of the CRD schema of
	// metav1.Condition.
	reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
)

// requireValid fails if an API server would refuse the condition, or a message
// is not fit to be shown.
func requireValid(t *testing.T, c metav1.Condition) {
	t.Helper()
	require.Regexp(t, reasonPattern, c.Reason)
	require.LessOrEqual(t, len(c.Reason), 64)
	require.LessOrEqual(t, len(c.Message), 1024)
	require.False(t, strings.ContainsFunc(c.Message, func(r rune) bool {
		return r == unicode.ReplacementChar || !unicode.IsPrint(r)
	}), "%q", c.Message)
	require.Contains(t, []string{conditions.TypeClusterReady, conditions.TypeWatchesSynced}, c.Type)
	require.Contains(t, []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown},
		c.Status)
	require.EqualValues(t, 7, c.ObservedGeneration)
	require.Zero(t, c.LastTransitionTime)
	if c.Status != metav1.ConditionTrue {
		require.NotEmpty(t, c.Message)
	}
}

func ready(t *testing.T, s status.Cluster) metav1.Condition {
	t.Helper()
	c := conditions.ClusterReady(s, 7)
	requireValid(t, c)
	return c
}

func synced[W conditions.Watch](t *testing.T, watches ...W) metav1.Condition {
	t.Helper()
	c := conditions.WatchesSynced(watches, 7)
	requireValid(t, c)
	return c
}

// words returns what a pattern finds in a file.
func words(t *testing.T, file, pattern string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		found = append(found, match[1])
	}
	return found
}

func phases(t *testing.T) []status.Phase {
	t.Helper()
	var all []status.Phase
	for _, word := range words(t, "../status/phase.go", `Phase\w+ +Phase = "(\w+)"`) {
		all = append(all, status.Phase(word))
	}
	require.Len(t, all, 7)
	return all
}

// reasonsOfClusters returns the reasons of the runbook, each with its sentence.
// A test at the root compares them with the code.
func reasonsOfClusters(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Reasons\n")
	section, _, _ = strings.Cut(section, "\n## ")
	all := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^### (\w+)\n\n(.*)$`).FindAllStringSubmatch(section, -1) {
		all[match[1]] = match[2]
	}
	require.Greater(t, len(all), 20)
	return all
}

func TestEveryPhaseAndReasonMakesAValidCondition(t *testing.T) {
	reasons := reasonsOfClusters(t)
	for _, phase := range phases(t) {
		c := ready(t, status.Cluster{Phase: phase})
		require.NotEqual(t, "Unknown", c.Reason, phase)
		for reason, sentence := range reasons {
			for _, connected := range []bool{false, true} {
				c := ready(t, status.Cluster{Phase: phase, Reason: reason, Connected: connected})
				switch {
				case phase == status.PhaseReady && connected:
					require.Equal(t, metav1.ConditionTrue, c.Status)
					require.Equal(t, "Ready", c.Reason)
					require.Equal(t, reason == "Throttled", c.Message == "", "a busy server is no fault of the access")
				case phase == status.PhaseReady:
					require.Equal(t, "NotConnected", c.Reason)
				case phase == status.PhaseConnecting:
					require.Equal(t, metav1.ConditionUnknown, c.Status)
				default:
					require.Equal(t, metav1.ConditionFalse, c.Status)
					require.Equal(t, reason, c.Reason)
					require.Equal(t, sentence, c.Message)
				}
			}
		}
	}
}

// TestWatchThatIsRefusedIsNoFaultOfTheAccess: the condition of the watches says
// it.
func TestWatchThatIsRefusedIsNoFaultOfTheAccess(t *testing.T) {
	c := ready(t, status.Cluster{
		Phase:     status.PhaseReady,
		Connected: true,
		Reason:    "Forbidden",
		LastError: &clustercache.ClusterError{
			Cluster: east,
			Op:      "watch",
			Err:     apierrors.NewForbidden(schema.GroupResource{}, "", nil),
		},
	})
	require.Equal(t, metav1.ConditionTrue, c.Status)
	require.Empty(t, c.Message)
}

func TestEveryReasonOfAnErrorHasASentence(t *testing.T) {
	reasons := words(t, "../errors.go", `(?m)^\t\{[\w.]+, "(\w+)"\},$`)
	require.Len(t, reasons, 11)
	reasons = append(reasons, words(t, "../errors.go", `return "(\w+)"`)...)
	require.Contains(t, reasons, "Stale")
	for _, reason := range reasons {
		c := ready(t, status.Cluster{Phase: status.PhaseDisconnected, Reason: reason})
		require.Equal(t, reason, c.Reason)
	}
	for _, err := range []error{
		clustercache.ErrUnknownCluster, clustercache.ErrNotConnected, clustercache.ErrConnecting,
		clustercache.ErrNotStarted, clustercache.ErrNotSynced, clustercache.ErrStale, clustercache.ErrNotWatched,
		clustercache.ErrNotWatchable, clustercache.ErrReleased, clustercache.ErrClosed, clustercache.ErrUnsupported,
		clustercache.ErrRefused, clustercache.ErrBudget, &meta.NoKindMatchError{GroupKind: widget.GroupKind()},
		apierrors.NewUnauthorized(""), apierrors.NewForbidden(schema.GroupResource{}, "", nil),
		apierrors.NewMethodNotSupported(schema.GroupResource{}, "list"), apierrors.NewBadRequest(""),
		apierrors.NewTooManyRequests("", 1), apierrors.NewInternalError(errors.New("etcd")),
	} {
		c := synced(t, status.Watch{Cluster: east, GVK: widget, LastError: err})
		require.Equal(t, clustercache.ReasonOf(err), c.Reason)
		require.NotEqual(t, metav1.ConditionTrue, c.Status)
	}
}

func TestTextOfAServerIsNoPartOfACondition(t *testing.T) {
	const foreign = "<b>\u202eexample\n"
	hostile := &apierrors.StatusError{ErrStatus: metav1.Status{Code: 418, Reason: foreign, Message: foreign}}
	c := synced(t, clustercache.Use{Key: status.WatchKey{Cluster: east, GVK: config}, LastError: hostile})
	require.Equal(t, "Unknown", c.Reason)
	require.NotContains(t, c.Message, "example")

	c = ready(t, status.Cluster{Phase: status.PhaseDisconnected, Reason: foreign, LastError: hostile})
	require.Equal(t, "Unknown", c.Reason)
	require.NotContains(t, c.Message, "example")
}

func TestMessageNamesTheObjectAndTheFieldAtFault(t *testing.T) {
	secret := resolver.ObjectRef{Kind: "Secret", Namespace: "fleet", Name: "east"}
	for message, err := range map[string]error{
		"Secret fleet/east: invalid kubeconfig: user.token has a line break": &resolver.KubeconfigError{
			Field: "user.token", Reason: "has a line break",
		},
		"Secret fleet/east: refused: user.exec is not allowed": &resolver.RefusedError{
			Field: "user.exec", Reason: "is not allowed",
		},
		"Secret fleet/east: secret not found": resolver.ErrSecretNotFound,
		"Secret fleet/east: key is missing":   resolver.ErrKeyMissing,
		"Secret fleet/east":                   errors.New("token abc at 12:31"),
	} {
		s := status.Cluster{
			Phase:     status.PhaseDisconnected,
			Reason:    status.ReasonBadAccess,
			LastError: &resolver.AccessError{Cluster: east, Ref: secret, Err: err},
		}
		want := "What describes the access is there and cannot be understood. " + message
		require.Equal(t, want, ready(t, s).Message)

		s.Phase, s.Connected = status.PhaseReady, true
		c := ready(t, s)
		require.Equal(t, metav1.ConditionTrue, c.Status)
		require.Equal(t, "Newer access does not work. "+want, c.Message)
	}
}

// TestMessageIsTheSameAfterEachAttempt compares states that differ in what
// changes by itself: times, numbers, addresses, and texts of errors.
func TestMessageIsTheSameAfterEachAttempt(t *testing.T) {
	var first metav1.Condition
	for n := range 3 {
		at := time.Date(2026, 1, 1, n, 0, 0, 0, time.UTC)
		c := ready(t, status.Cluster{
			Cluster:     east,
			Phase:       status.PhaseRefused,
			Reason:      status.ReasonRefused,
			Since:       at,
			LostSince:   at,
			NextAttempt: at.Add(time.Minute),
			Failures:    n,
			Endpoint:    fmt.Sprintf("https://10.0.0.%d:6443", n),
			LastError: fmt.Errorf("attempt %d: %w", n, &resolver.RefusedError{
				Field: fmt.Sprintf("address 10.0.0.%d", n), Reason: "is a link-local address",
			}),
		})
		if n == 0 {
			first = c
		}
		require.Equal(t, first, c)
		require.Contains(t, c.Message, "refused: address is a link-local address")
	}

	for n := range 3 {
		at := time.Date(2026, 1, 1, n, 0, 0, 0, time.UTC)
		c := synced(t, status.Watch{
			Cluster:    east,
			GVK:        config,
			LastError:  apierrors.NewInternalError(fmt.Errorf("at %s", at)),
			References: n,
			Informer:   informerpool.Status{Lists: int64(n), Since: at, Synced: true},
		})
		if n == 0 {
			first = c
		}
		require.Equal(t, first, c)
	}
}

func TestWorstWatchIsTheReason(t *testing.T) {
	use := func(cluster client.ObjectKey, gvk schema.GroupVersionKind, synced bool, err error) clustercache.Use {
		return clustercache.Use{
			Key:       status.WatchKey{Cluster: cluster, GVK: gvk},
			Synced:    synced,
			LastError: err,
		}
	}
	down := fmt.Errorf("%w: %w", clustercache.ErrNotConnected, resolver.ErrNoAccess)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "widgets"}, "", nil)
	uses := []clustercache.Use{use(east, config, true, nil)}
	check := func(snapshot metav1.ConditionStatus, reason, message string) {
		t.Helper()
		for range uses { // in any order
			uses = append(uses[1:], uses[0])
			c := synced(t, uses...)
			require.Equal(t, snapshot, c.Status)
			require.Equal(t, reason, c.Reason)
			require.Equal(t, message, c.Message)
		}
	}
	require.Equal(t, conditions.ReasonNoWatches, synced[clustercache.Use](t).Reason)
	require.Equal(t, metav1.ConditionUnknown, synced[status.Watch](t).Status)
	check(metav1.ConditionTrue, "Synced", "")

	uses = append(uses, use(west, config, false, nil))
	check(metav1.ConditionUnknown, "NotSynced", "The first list has not ended.")

	uses = append(uses, use(west, widget, true, context.Canceled))
	check(metav1.ConditionFalse, "Canceled", "The attempt was called off. "+
		"example.com/v1 Widget in cluster fleet/west (Canceled)")

	uses = append(uses, use(client.ObjectKey{}, config, false, down))
	check(metav1.ConditionFalse, "NoAccess", "Nothing describes yet how the cluster is reached, "+
		"or it is not ready to be. v1 ConfigMap in cluster hub (NoAccess), "+
		"example.com/v1 Widget in cluster fleet/west (Canceled)")

	// The kind counts once in the cluster, with its worst fault.
	uses = append(uses, use(west, widget, true, forbidden), use(west, widget, true, forbidden))
	check(metav1.ConditionFalse, "Forbidden", "The API server knows us and does not allow this. "+
		"example.com/v1 Widget in cluster fleet/west (Forbidden), v1 ConfigMap in cluster hub (NoAccess)")

	for n := range 5 {
		uses = append(uses, use(client.ObjectKey{Name: fmt.Sprint("c", n)}, widget, false, forbidden))
	}
	check(metav1.ConditionFalse, "Forbidden", "The API server knows us and does not allow this. "+
		"example.com/v1 Widget in cluster c0 (Forbidden), example.com/v1 Widget in cluster c1 (Forbidden), "+
		"example.com/v1 Widget in cluster c2 (Forbidden), and 4 more")
}

func TestMessageIsBoundedWhateverTheNames(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 5000), strings.Repeat("é", 5000), strings.Repeat("\xff", 5000),
		strings.Repeat("a\u202e\n", 1000), "東\x00京"} {
		var watches []status.Watch
		for n := range 100 {
			watches = append(watches, status.Watch{
				Cluster:   client.ObjectKey{Namespace: fmt.Sprint(n) + name, Name: name},
				GVK:       schema.GroupVersionKind{Group: name, Version: name, Kind: name},
				LastError: resolver.ErrNoAccess,
			})
		}
		require.Contains(t, synced(t, watches...).Message, ", and 97 more")

		refused := &resolver.AccessError{
			Ref: resolver.ObjectRef{Kind: name, Namespace: name, Name: name},
			Err: errors.Join(&resolver.RefusedError{Field: name, Reason: name},
				&resolver.KubeconfigError{Field: name, Reason: name}, resolver.ErrKeyMissing),
		}
		c := ready(t, status.Cluster{Phase: status.PhaseReady, Connected: true,
			Reason: status.ReasonRefused, LastError: refused})
		require.Contains(t, c.Message, "key is missing")
	}
}
