// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/reference"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Bounds that an API server sets.
const (
	maxNote = 1024
	maxWord = 128
	maxName = 200 // of the prefix of a name
)

var (
	errEventType = errors.New("type is neither Normal nor Warning")
	errNoReason  = errors.New("no reason")
)

// occurrence is what makes two events of a cluster equal, as in client-go: the
// note, which often has a number or an error in it, is no part of it.
type occurrence struct {
	cluster                   client.ObjectKey
	regarding, related        corev1.ObjectReference
	eventType, reason, action string
}

// newOccurrence returns what is to be recorded.
func newOccurrence(
	scheme *runtime.Scheme, cluster client.ObjectKey, regarding, related runtime.Object,
	eventType, reason, action string,
) (occurrence, error) {
	o := occurrence{
		cluster:   cluster,
		eventType: eventType,
		reason:    cut(reason, maxWord),
		action:    cut(action, maxWord),
	}
	switch {
	case eventType != corev1.EventTypeNormal && eventType != corev1.EventTypeWarning:
		return o, errEventType
	case reason == "":
		return o, errNoReason
	case action == "":
		o.action = o.reason
	}

	about, err := reference.GetReference(scheme, regarding)
	if err != nil {
		return o, err
	}
	o.regarding = *about
	o.regarding.ResourceVersion = "" // the states of an object are one series
	if related != nil {
		also, err := reference.GetReference(scheme, related)
		if err != nil {
			return o, err
		}
		o.related = *also
		o.related.ResourceVersion = ""
	}

	return o, nil
}

// cut shortens a text to a number of bytes, and no character.
func cut(s string, limit int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// event returns the event of an occurrence, with the note of the first.
func (o *occurrence) event(by RecorderOptions, note string, first time.Time) *eventsv1.Event {
	namespace := o.regarding.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // that of objects without one
	}
	e := &eventsv1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    namespace,
			GenerateName: prefix(o.regarding.Name),
		},
		EventTime:           metav1.NewMicroTime(first),
		ReportingController: by.Controller,
		ReportingInstance:   by.Instance,
		Action:              o.action,
		Reason:              o.reason,
		Regarding:           o.regarding,
		Note:                note,
		Type:                o.eventType,
	}
	if o.related != (corev1.ObjectReference{}) {
		e.Related = &o.related
	}

	return e
}

// prefix returns the beginning of the names of an object's events. The names of
// some kinds, such as ClusterRoles, may not be those of events.
func prefix(name string) string {
	name = strings.TrimRight(cut(name, maxName), "-.")
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "event-"
	}
	return name + "-"
}
