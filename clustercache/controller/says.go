// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"reflect"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
)

// opinion is what an error says of one cluster.
type opinion struct {
	says  bool // that the cluster is unknown, not connected, or whatever was asked for
	named bool // and it names the cluster
	other bool // it also reports another failure, or one of another cluster
}

// says returns what an error says of a cluster: whether it is a target, such as
// [clustercache.ErrNotConnected], of this cluster. A reconciler may use several
// clusters, so errors.Is does not decide that. An error that names no cluster
// counts as one of this cluster. Of errors that were joined, each has to say so;
// an error that wraps several is one, and is what one of them says.
func says(err error, cluster client.ObjectKey, target error) opinion {
	named := func(of client.ObjectKey, cause error) opinion {
		yes := of == cluster && errors.Is(cause, target)
		return opinion{says: yes, named: yes, other: !yes}
	}
	switch e := err.(type) { //nolint:errorlint // what an error wraps is looked at below
	case nil:
		return opinion{}
	case *clustercache.ClusterError:
		return named(e.Cluster, e.Err)
	case *clustercache.TargetError:
		if e.ClusterSelector != nil { // it is about no cluster in particular
			return opinion{other: true}
		}
		return named(e.Cluster, e.Err)
	case *ownership.NotOwnerError:
		return named(e.Cluster, e)
	case utilerrors.Aggregate: // which does not unwrap
		return saysEach(e.Errors(), cluster, target, true)
	case interface{ Unwrap() []error }:
		return saysEach(e.Unwrap(), cluster, target, reflect.TypeOf(err) == joined)
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return says(inner, cluster, target)
		}
	}

	return opinion{says: errors.Is(err, target)}
}

// joined is the type of the errors that errors.Join returns.
var joined = reflect.TypeOf(errors.Join(errRequired))

// saysEach returns what several errors say. all is whether each of them has to
// say the same.
func saysEach(errs []error, cluster client.ObjectKey, target error, all bool) (out opinion) {
	for _, err := range errs {
		if err == nil {
			continue
		}
		o := says(err, cluster, target)
		out.says = out.says || o.says
		out.named = out.named || o.named
		out.other = out.other || o.other || all && !o.says
	}
	return out
}

// alone reports whether that is all that the error says.
func (o opinion) alone() bool { return o.says && !o.other }
