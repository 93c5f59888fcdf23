// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// verbs are what a replica needs to be allowed to do with Leases.
var verbs = [...]string{"list", "watch", "create", "update", "patch", "delete"}

// permitted asks the hub whether the replica has all permissions, and waits
// until it answers. Otherwise a replica without the permission to delete would
// seem to work until another one is killed, whose clusters would have no owner.
func (s *Sharding) permitted(ctx context.Context) error {
	var answers [len(verbs)]struct{ allowed, ok bool }
	var asking sync.WaitGroup
	for i, verb := range verbs { // all at once: the hub may be slow
		asking.Go(func() { answers[i].allowed, answers[i].ok = s.review(ctx, verb) })
	}
	asking.Wait()
	var missing []string
	for i, verb := range verbs {
		if !answers[i].ok {
			return nil
		}
		if !answers[i].allowed {
			missing = append(missing, verb)
		}
	}
	if len(missing) > 0 {
		return &PermissionError{Namespace: s.options.Namespace, Verbs: missing}
	}
	return nil
}

// review asks about one verb. It reports false if the replica is to end, or if
// the hub does not answer such questions.
func (s *Sharding) review(ctx context.Context, verb string) (allowed, ok bool) {
	question := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: s.options.Namespace,
			Verb:      verb,
			Group:     "coordination.k8s.io",
			Resource:  "leases",
		},
	}}
	for {
		limited, cancel := context.WithTimeout(ctx, s.options.writeTimeout())
		answer, err := s.reviews.Create(limited, question, metav1.CreateOptions{})
		cancel()
		if err == nil {
			return answer.Status.Allowed, true
		}
		status := apierrors.APIStatus(nil)
		if errors.As(err, &status) && status.Status().Code/100 == 4 && !apierrors.IsTooManyRequests(err) {
			s.log.V(1).Info("the hub does not say what is permitted", "error", err.Error())
			return false, false
		}

		s.log.Info("cannot ask the hub what is permitted, will retry", "error", err.Error())
		select {
		case <-time.After(retryMax):
		case <-ctx.Done():
			return false, false
		case <-s.closing:
			return false, false
		}
	}
}
