// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"iter"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
)

// Answer is what one cluster answered.
type Answer[T client.Object] struct {
	// Cluster is the cluster.
	Cluster client.ObjectKey
	// ClusterLabels are the labels that the cluster had when the iteration
	// began. Nil if they were unknown.
	ClusterLabels map[string]string
	// Origin describes where the answer comes from, and how old it is. All
	// objects of an answer belong to one epoch.
	Origin clustercache.Origin

	gvk     schema.GroupVersionKind
	objects []*informerpool.Object
	decode  lister
	goType  reflect.Type // *T
}

// Len returns the number of objects.
func (a *Answer[T]) Len() int { return len(a.objects) }

// Items yields the objects. It can be iterated more than once, and later: the
// answer does not change.
func (a *Answer[T]) Items() iter.Seq[Item[T]] {
	return func(yield func(Item[T]) bool) {
		for _, o := range a.objects {
			if !yield(Item[T]{Cluster: a.Cluster, Answer: a, object: o}) {
				return
			}
		}
	}
}

// Item is one object of one cluster. It is small, can be copied, and keeps the
// Answer in memory.
type Item[T client.Object] struct {
	// Cluster is the cluster of the object.
	Cluster client.ObjectKey
	// Answer is what the cluster answered as a whole. Beside an error it has
	// only the cluster.
	Answer *Answer[T]

	object *informerpool.Object
}

// Metadata returns the metadata, shared and read-only: methods that set a field
// panic. Names, uid, labels and the like are read without decoding the object;
// annotations, finalizers and managedFields are not, nor are maps and slices
// shared.
func (i Item[T]) Metadata() metav1.Object { return i.object }

// Label returns the value of a label of the object, and whether there is one,
// without decoding the object.
func (i Item[T]) Label(key string) (value string, ok bool) { return i.object.Label(key) }

// Object decodes the object, anew with each call. The result belongs to the
// caller. The error is a *clustercache.ClusterError: the object does not fit
// its Go type.
func (i Item[T]) Object() (T, error) {
	var none T
	fresh, _ := reflect.TypeAssert[T](reflect.New(i.Answer.goType)) // the type of what the caller passed
	if err := i.Answer.decode.Decode(i.object, fresh); err != nil {
		return none, &clustercache.ClusterError{
			Cluster: i.Cluster,
			GVK:     i.Answer.gvk,
			Op:      "decode",
			Err:     err,
		}
	}
	return fresh, nil
}

// ByCluster returns an iterator that yields each cluster once, with what it
// answered or with why it did not, a [*clustercache.ClusterError]. Clusters
// without objects are yielded, too. The Answer is never nil; beside an error it
// has only the cluster.
//
// kind and opts are those of [List], and so are the errors.
func ByCluster[T client.Object](
	ctx context.Context, cc *clustercache.ClusterCache, kind T, opts ...client.ListOption,
) iter.Seq2[*Answer[T], error] {
	return func(yield func(*Answer[T], error) bool) {
		r, err := newRead(cc, kind, opts)
		if err != nil {
			yield(&Answer[T]{}, err)
			return
		}
		*r.total = Total{Unlisted: r.unlisted()}
		if r.total.Unlisted != nil && !yield(&Answer[T]{}, r.total.Unlisted) {
			return
		}

		goType := reflect.TypeOf(kind).Elem()
		for of := range r.results(ctx) {
			answer := &Answer[T]{
				Cluster:       of.key,
				ClusterLabels: of.labels,
				Origin:        of.origin,
				gvk:           r.gvk,
				objects:       of.objects,
				decode:        r.lister(of.key),
				goType:        goType,
			}
			if of.err != nil {
				answer = &Answer[T]{Cluster: of.key}
			}
			if !yield(answer, of.err) {
				return
			}
		}
	}
}

// List returns an iterator over the objects of a kind in many clusters:
//
//	for pod, err := range fleet.List(ctx, cc, &corev1.Pod{}, client.InNamespace("apps")) { … }
//
// kind names the kind, and is what [Item.Object] decodes into: a typed object,
// an unstructured one, or clustercache.Kind for metadata alone. The options are
// those of a List of one cluster: client.InNamespace, client.MatchingLabels and
// the like select objects; a clustercache.ReadMode, MaxStaleness and ForApply
// say where answers may come from. [Options] selects clusters, and [Total]
// counts.
//
// A cluster that cannot be read yields its error once, a
// [*clustercache.ClusterError] with its key, which the Item has as well, and
// the iteration continues with the next. Of a cluster that yielded an object
// all are yielded, in the state of one moment. An error that is no
// ClusterError concerns the read as a whole: a [*clustercache.OptionError] for
// options that cannot be used, after which nothing follows, and
// ErrNotStarted or the like where it is not known yet which clusters there are.
//
// The read happens while the iterator is ranged over, and again with each range
// over it. List itself does nothing, and no lock is held while the loop's body
// runs. When ctx ends, each cluster that has not been read yields the cause.
// Leaving the loop cancels the queries under way and waits until they have
// ended.
func List[T client.Object](
	ctx context.Context, cc *clustercache.ClusterCache, kind T, opts ...client.ListOption,
) iter.Seq2[Item[T], error] {
	return func(yield func(Item[T], error) bool) {
		for answer, err := range ByCluster(ctx, cc, kind, opts...) {
			if err != nil && !yield(Item[T]{Cluster: answer.Cluster, Answer: answer}, err) {
				return
			}
			for item := range answer.Items() {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}
