// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool/internal/loudness"
)

// interruptions log what keeps an informer from its server.
type interruptions struct {
	informer *informer
	lines    loudness.Lines
	last     string // the last failure that was logged since a stream was followed
}

// add logs why an attempt failed, once for each cause in a row: a refusal as an
// error, since a person has to change something. What interrupts other informers
// of the cluster, too, is logged for the first of them. The cluster of an
// informer that nothing uses any more is taken away in the ordinary way.
func (l *interruptions) add(err error) {
	cause, before := err.Error(), l.last
	l.last = cause
	log := l.informer.pool.options.Logger.WithValues("informer", l.informer.key.String())
	switch {
	case cause == before:
	case l.informer.pool.unused(l.informer):
		log.V(1).Info("Unused informer interrupted", "error", cause)
	case !l.lines.Allow(cause, time.Now()):
		log.V(1).Info("Informer interrupted again", "error", cause)
	case lasting(err):
		log.Error(err, "Informer refused")
	case !l.first(cause):
		log.V(1).Info("Informer interrupted like others of its cluster", "error", cause)
	default:
		log.Info("Informer interrupted", "error", cause)
	}
}

// first reports whether no other informer of the cluster has reported a cause
// lately, whatever keys, paths and resources the causes name.
func (l *interruptions) first(cause string) bool {
	key := &l.informer.key
	for _, own := range []string{
		key.String(), requestPath(Request{Key: *key}), key.Resource.GroupResource().String(), key.Resource.Resource,
	} {
		cause = strings.ReplaceAll(cause, own, "")
	}
	return l.informer.cluster.causes.First(cause, time.Now())
}

// loud returns the logger for a line about a cause: there are only so many of
// each at the usual verbosity, since the server could fill the log otherwise.
func (l *interruptions) loud(cause string) logr.Logger {
	if l.lines.Allow(cause, time.Now()) {
		return l.informer.pool.options.Logger
	}
	return l.informer.pool.options.Logger.V(1)
}

// lasting reports whether an error remains until a person changes something:
// rights, the selector, or a limit.
func lasting(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err) ||
		apierrors.IsUnsupportedMediaType(err) || errors.Is(err, ErrBudget)
}
