// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetserver

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	protobufType = runtime.ContentTypeProtobuf
	jsonType     = runtime.ContentTypeJSON
	// compressed is from how many bytes on a response is compressed, as in
	// kube-apiserver.
	compressed = 128 << 10
)

var (
	proto = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	// raw encodes the events of a stream, whose objects are encoded by proto.
	raw = protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme)

	metaVersion  = metav1.SchemeGroupVersion
	metadataKind = metaVersion.WithKind("PartialObjectMetadata")
)

// representation is how a response represents objects.
type representation struct {
	table    *table
	protobuf bool
	metadata bool // metadata only
}

// isCustom reports whether a CustomResourceDefinition defines the kind, so that
// only metadata is served as protobuf.
func (t *table) isCustom() bool { return !scheme.Scheme.Recognizes(t.kind.GVK) }

// representationOf returns the first of the representations that the client
// accepts. Without a table, what it represents is not reduced to metadata.
func representationOf(r *http.Request, t *table) representation {
	for clause := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		media, _, _ := strings.Cut(strings.TrimSpace(clause), ";")
		metadata := strings.Contains(clause, "as=PartialObjectMetadata")
		if media != protobufType && media != jsonType || metadata && t == nil {
			continue
		}
		if media == protobufType && !metadata && t != nil && t.isCustom() {
			continue
		}
		return representation{
			table:    t,
			protobuf: media == protobufType,
			metadata: metadata,
		}
	}
	return representation{table: t}
}

func (p representation) contentType() string {
	if p.protobuf {
		return protobufType
	}
	return jsonType
}

// encode encodes an object, in JSON with a line feed.
func (p representation) encode(o runtime.Object) ([]byte, error) {
	if !p.protobuf {
		text, err := json.Marshal(o)
		return append(text, '\n'), err
	}
	var b bytes.Buffer
	err := proto.Encode(o, &b)
	return b.Bytes(), err
}

// of returns what the response has instead of the object.
func (p representation) of(o client.Object) runtime.Object {
	if !p.metadata {
		return o
	}
	m := meta.AsPartialObjectMetadata(o)
	m.SetGroupVersionKind(metadataKind)
	return m
}

// one responds with one object.
func (p representation) one(w http.ResponseWriter, o client.Object) error {
	text, err := p.encode(p.of(o))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", p.contentType())
	_, err = w.Write(text)
	return err
}

// many responds with a list.
func (p representation) many(w http.ResponseWriter, r *http.Request, m metav1.ListMeta, items []client.Object) error {
	list, err := p.list(m, items)
	if err != nil {
		return err
	}
	text, err := p.encode(list)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", p.contentType())
	w.Header().Set("Vary", "Accept-Encoding")
	if len(text) < compressed || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, err = w.Write(text)
		return err
	}

	w.Header().Set("Content-Encoding", "gzip")
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	_, err = z.Write(text)

	return errors.Join(err, z.Close())
}

// customList is a list of objects of a custom kind, which have no common type.
type customList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []runtime.Object `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *customList) DeepCopyObject() runtime.Object {
	out := &customList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for _, o := range l.Items {
		out.Items = append(out.Items, o.DeepCopyObject())
	}
	return out
}

// list makes the list; its items do not name their kind, unless they are
// metadata only or custom.
func (p representation) list(m metav1.ListMeta, items []client.Object) (runtime.Object, error) {
	gvk := p.table.kind.GVK
	gvk.Kind += "List"
	var list runtime.Object
	switch {
	case p.metadata:
		gvk = metaVersion.WithKind("PartialObjectMetadataList")
		list = &metav1.PartialObjectMetadataList{ListMeta: m}
	case p.table.isCustom():
		list = &customList{ListMeta: m}
	default:
		var err error
		if list, err = scheme.Scheme.New(gvk); err != nil {
			return nil, err
		}
		access, err := meta.ListAccessor(list)
		if err != nil {
			return nil, err
		}
		access.SetResourceVersion(m.ResourceVersion)
		access.SetContinue(m.Continue)
		access.SetRemainingItemCount(m.RemainingItemCount)
	}
	list.GetObjectKind().SetGroupVersionKind(gvk)
	all := make([]runtime.Object, len(items))
	for i, o := range items {
		all[i] = p.of(o)
		if !p.metadata && !p.table.isCustom() {
			all[i].GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
	}

	return list, meta.SetList(list, all)
}

// frames writes the events of a stream.
type frames struct {
	representation

	w      http.ResponseWriter
	framer interface{ Write([]byte) (int, error) }
}

func (p representation) frames(w http.ResponseWriter) *frames {
	f := &frames{representation: p, w: w, framer: w}
	w.Header().Set("Content-Type", p.contentType())
	if p.protobuf {
		w.Header().Set("Content-Type", p.contentType()+";stream=watch")
		f.framer = protobuf.LengthDelimitedFramer.NewFrameWriter(w)
	}
	return f
}

// write writes one event. A Status is not reduced to metadata.
func (f *frames) write(event watch.EventType, o runtime.Object) error {
	if x, ok := o.(client.Object); ok {
		o = f.of(x)
	}
	text, err := f.encode(o)
	if err != nil {
		return err
	}
	if !f.protobuf {
		frame := []byte(`{"type":"` + string(event) + `","object":`)
		frame = append(frame, bytes.TrimSuffix(text, []byte("\n"))...)
		frame = append(frame, "}\n"...)
		_, err = f.framer.Write(frame)
		return err
	}

	var b bytes.Buffer
	e := &metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: text}}
	if err := raw.Encode(e, &b); err != nil {
		return err
	}
	_, err = f.framer.Write(b.Bytes())

	return err
}

func (f *frames) flush() error { return http.NewResponseController(f.w).Flush() }

func newObject(gvk schema.GroupVersionKind) (client.Object, error) {
	if !scheme.Scheme.Recognizes(gvk) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		return u, nil
	}
	o, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	object, ok := o.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s is no object", gvk)
	}
	return object, nil
}

func kubeSystem(uid string) *corev1.Namespace {
	ns := &corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}}}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	ns.Name, ns.UID = "kube-system", types.UID(uid)
	ns.Labels = map[string]string{corev1.LabelMetadataName: ns.Name}
	ns.Status.Phase = corev1.NamespaceActive

	return ns
}
