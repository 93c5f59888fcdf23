// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// selectionText describes which objects of a kind are watched.
func selectionText(s status.Watch) string {
	parts := slices.DeleteFunc([]string{s.Namespace, s.LabelSelector, s.FieldSelector},
		func(part string) bool { return part == "" })
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

// unmappedText returns why a watch has no informer.
func unmappedText(connected bool, err error) string {
	switch {
	case !connected:
		return "Not connected: the kind is looked up once the cluster is."
	case meta.IsNoMatchError(err):
		return "The cluster does not serve this kind."
	case errors.Is(err, ErrNotWatchable):
		return "The cluster serves this kind without watches."
	}

	return "The kind is being looked up."
}

// attemptsText returns how many attempts failed, and when the next is due.
func attemptsText(s status.Cluster) string {
	text := "none failed"
	if s.Failures > 0 {
		text = countText(s.Failures, "attempt") + " failed"
	}
	switch wait := time.Until(s.NextAttempt); {
	case s.NextAttempt.IsZero() && s.Failures > 0 && s.Phase != status.PhaseGone:
		return text + ", one is under way"
	case s.NextAttempt.IsZero():
		return text
	default:
		return text + ", the next in " + durationText(max(wait, 0))
	}
}

// credentialsText returns how long a cluster's credentials have been in use,
// and when they end.
func credentialsText(s status.Cluster) string {
	if s.AccessSince.IsZero() {
		return "none in use"
	}
	text := "in use for " + ago(s.AccessSince)
	switch left := time.Until(s.CredentialExpiry); {
	case s.CredentialExpiry.IsZero():
		return text + ", end unknown"
	case left < 0:
		return text + ", ended " + ago(s.CredentialExpiry) + " ago"
	default:
		return text + ", end in " + durationText(left) + " (" + stamp(s.CredentialExpiry) + ")"
	}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// ownershipText returns what this replica has to do with a cluster.
func ownershipText(s *ownership.State) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s, slot %d", ownershipOf(s), s.Slot)
}

// ownershipOf returns the state of an ownership as a word.
func ownershipOf(s *ownership.State) string {
	switch {
	case s.Owned:
		return "owned"
	case s.Draining:
		return "draining"
	case s.StandsBy:
		return "standby"
	}

	return "other"
}

// connectedText returns whether a cluster is connected, and since when it is
// not.
func connectedText(s status.Cluster) string {
	switch {
	case s.Connected:
		return "yes"
	case s.LostSince.IsZero():
		return "no"
	}

	return "no, lost " + sinceText(s.LostSince)
}

// sinceText returns how long ago t was.
func sinceText(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return ago(t) + " ago"
}

// ago returns the time since t in human-readable form.
func ago(t time.Time) string { return durationText(time.Since(t)) }

// durationText returns a duration in human-readable form.
func durationText(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %dm", int(d.Hours()), int(d.Minutes())%60)
	}

	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// countText returns a number with its noun.
func countText(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// sizeText returns a number of bytes in human-readable form.
func sizeText(n int64) string {
	const unit = 1 << 10
	switch {
	case n < unit:
		return fmt.Sprintf("%d B", n)
	case n < unit*unit:
		return fmt.Sprintf("%.1f KiB", float64(n)/unit)
	case n < unit*unit*unit:
		return fmt.Sprintf("%.1f MiB", float64(n)/(unit*unit))
	}

	return fmt.Sprintf("%.1f GiB", float64(n)/(unit*unit*unit))
}
