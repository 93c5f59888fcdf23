// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/clustercache/sharding/internal/protocol"
)

// writers is how many writes to slots run at once. Those to members do not
// wait.
const writers = 8

// send carries out a write, and reports its result to the replica.
func (s *Sharding) send(ctx context.Context, a protocol.Action) {
	again := s.existed[a.Name]
	s.work.Go(func() {
		if a.Kind == protocol.Take || a.Kind == protocol.Release {
			select {
			case s.permits <- struct{}{}:
				defer func() { <-s.permits }()
			case <-ctx.Done():
				return
			}
		}
		limited, cancel := context.WithTimeout(ctx, s.options.writeTimeout())
		defer cancel()
		// Ownership counts from here, whenever the answer comes.
		sent := time.Now()
		err := s.write(limited, a, sent)
		outcome := outcomeOf(a, err)
		if err != nil {
			s.log.V(level(a, outcome)).Info("write to lease failed", "write", writeNames[a.Kind], "lease", a.Name,
				"error", err.Error())
		}
		exists := apierrors.IsAlreadyExists(err)
		var taken *NameError
		if exists && again {
			taken = s.taken(limited, a)
		}
		s.post(ctx, func(now time.Time) {
			s.replica.Answer(now, sent, a, outcome)
			if exists {
				s.existed[a.Name] = true
			}
			s.tell(a, taken)
		})
	})
}

// taken looks, after a Lease could twice not be created because there is one of
// its name, whether that is one of the group, which the watch should have shown.
// It returns nil if it is, or if that is not known.
func (s *Sharding) taken(ctx context.Context, a protocol.Action) *NameError {
	named := fields.OneTermEqualSelector("metadata.name", a.Name).String() // needs no other permission
	list, err := s.leases.List(ctx, metav1.ListOptions{FieldSelector: named})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		l := &list.Items[i]
		if owner, foreign := s.foreign(l); foreign && l.Name == a.Name {
			return &NameError{
				Namespace: s.options.Namespace,
				Lease:     l.Name,
				Owner:     owner,
				Group:     s.options.Name,
				Program:   s.options.Program,
			}
		}
	}
	return nil
}

// tell notes that the name of a Lease is taken. Without a charter the replica
// does not run. Without a slot, it says once that the slot has no owner.
func (s *Sharding) tell(a protocol.Action, taken *NameError) {
	switch {
	case taken == nil:
	case a.Kind == protocol.Found:
		s.refused = taken
	case !s.told[a.Name]:
		s.told[a.Name] = true
		s.log.Error(taken, "clusters have no owner", "slot", a.Slot)
	}
}

// writeNames name the writes in logs.
var writeNames = map[protocol.Kind]string{
	protocol.Found:   "found",
	protocol.Join:    "join",
	protocol.Renew:   "renew",
	protocol.Take:    "take",
	protocol.Release: "release",
	protocol.Bury:    "bury",
	protocol.Quit:    "quit",
}

// level is that of the log line for a failed write. Those whose condition was
// not met belong to the protocol, except that nothing but a deletion of its
// Lease keeps a replica from renewing it.
func level(a protocol.Action, o protocol.Outcome) int {
	if o == protocol.Refused && a.Kind != protocol.Renew {
		return 1
	}
	return 0
}

func (s *Sharding) write(ctx context.Context, a protocol.Action, now time.Time) (err error) {
	switch a.Kind {
	case protocol.Found:
		_, err = s.leases.Create(ctx, s.charterLease(a.Name), metav1.CreateOptions{})
	case protocol.Join:
		_, err = s.leases.Create(ctx, s.memberLease(a, now), metav1.CreateOptions{})
	case protocol.Renew:
		var patch []byte
		var renewed *coordinationv1.Lease
		if patch, err = renewal(a, now); err == nil {
			renewed, err = s.leases.Patch(ctx, a.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err == nil && !shows(renewed, a, now) {
			err = errNotRenewed
		}
	case protocol.Take, protocol.Release:
		if a.Revision == "" {
			_, err = s.leases.Create(ctx, s.slotLease(a, now), metav1.CreateOptions{})
		} else {
			_, err = s.leases.Update(ctx, s.slotLease(a, now), metav1.UpdateOptions{})
		}
	case protocol.Bury, protocol.Quit:
		err = s.leases.Delete(ctx, a.Name, conditions(a))
	default:
		panic("sharding: no write")
	}
	return err
}

// errNotRenewed indicates that a success shows another state than was written:
// a gateway answered with an earlier one, or with something else.
var errNotRenewed = errors.New("the answer to a renewal does not show it")

// shows reports whether a Lease is the one that a renewal wrote.
func shows(l *coordinationv1.Lease, a protocol.Action, sent time.Time) bool {
	return l != nil && string(l.UID) == a.UID && l.Spec.RenewTime != nil &&
		l.Spec.RenewTime.Time.Equal(sent.Truncate(time.Microsecond))
}

// outcomeOf returns what an error means for the protocol.
func outcomeOf(a protocol.Action, err error) protocol.Outcome {
	created := a.Kind == protocol.Found || a.Kind == protocol.Join || a.Revision == "" && a.Kind == protocol.Take
	switch {
	case err == nil:
		return protocol.Done
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return protocol.Refused
	case apierrors.IsNotFound(err) && !created: // a namespace that does not exist is another trouble
		return protocol.Refused
	case a.Kind == protocol.Renew && changesUID(err):
		return protocol.Refused
	}
	return protocol.Unknown
}

// changesUID reports whether a patch was refused because the Lease has another
// UID. API servers call that a change of an immutable field.
func changesUID(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}
