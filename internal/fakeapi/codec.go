// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const (
	protobufType = runtime.ContentTypeProtobuf
	maxBody      = 3 << 20
)

// decoder decodes the protobuf bodies that typed clients send for built-in
// kinds.
var decoder = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

func now() string { return time.Now().UTC().Format(time.RFC3339) }

func (x *exchange) readBody() ([]byte, string, error) {
	body, err := io.ReadAll(io.LimitReader(x.r.Body, maxBody+1))
	if err != nil {
		return nil, "", apierrors.NewBadRequest(err.Error())
	}
	if len(body) > maxBody {
		return nil, "", apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	media, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if err != nil {
		media = runtime.ContentTypeJSON
	}

	return body, media, nil
}

// toJSON converts YAML to JSON. JSON, which nearly all clients send, is YAML,
// too, but takes many times as long to parse as such.
func toJSON(body []byte) ([]byte, error) {
	if json.Valid(body) {
		return body, nil
	}
	return yaml.YAMLToJSON(body)
}

// decodeObject decodes the object in the body of a write.
func (x *exchange) decodeObject() (*unstructured.Unstructured, error) {
	body, media, err := x.readBody()
	if err != nil {
		return nil, err
	}
	k, apiVersion := x.table.kind, x.apiVersion()
	u := &unstructured.Unstructured{}
	switch media {
	case protobufType:
		typed, _, err := decoder.Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		u.SetAPIVersion(apiVersion)
		u.SetKind(k.Kind)
	case runtime.ContentTypeJSON, runtime.ContentTypeYAML:
		if body, err = toJSON(body); err == nil {
			err = u.UnmarshalJSON(body)
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	default:
		return nil, unsupportedMedia(media)
	}

	if u.GetAPIVersion() != apiVersion || u.GetKind() != k.Kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is of %s %s, the path of %s %s", u.GetAPIVersion(),
			u.GetKind(), apiVersion, k.Kind))
	}
	return fit(u, k)
}

func unsupportedMedia(media string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure,
		Code:   http.StatusUnsupportedMediaType,
		Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: "+
			"application/json, not %s", media),
	}}
}

// fit converts an object of a built-in kind to the form of its Go type: it
// drops unknown fields, and returns an error for a field of the wrong type.
// Objects of other kinds stay unchanged.
func fit(u *unstructured.Unstructured, k *Kind) (*unstructured.Unstructured, error) {
	if k.builtIn {
		typed, err := scheme.Scheme.New(u.GroupVersionKind())
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		out := &unstructured.Unstructured{}
		if out.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		out.SetAPIVersion(u.GetAPIVersion())
		out.SetKind(u.GetKind())
		u = out
	}

	if _, ok := u.Object["metadata"].(map[string]any); !ok {
		u.Object["metadata"] = map[string]any{}
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "selfLink")
	if stamp, found, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "creationTimestamp"); found &&
		stamp == nil {
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	}
	return u, nil
}

// prepare applies what kube-apiserver's own code for a few kinds does to new or
// changed objects.
func prepare(u, old *unstructured.Unstructured) {
	switch {
	case u.GetKind() == "Secret" && u.GetAPIVersion() == "v1":
		plain, _, _ := unstructured.NestedStringMap(u.Object, "stringData")
		for k, v := range plain {
			_ = unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString([]byte(v)), "data", k)
		}
		delete(u.Object, "stringData")
		if kind, _, _ := unstructured.NestedString(u.Object, "type"); kind == "" {
			u.Object["type"] = "Opaque"
		}
	case u.GetKind() == "Namespace" && u.GetAPIVersion() == "v1":
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["kubernetes.io/metadata.name"] = u.GetName()
		u.SetLabels(labels)
		if old == nil {
			_ = unstructured.SetNestedStringSlice(u.Object, []string{"kubernetes"}, "spec", "finalizers")
			_ = unstructured.SetNestedField(u.Object, "Active", "status", "phase")
		}
	case u.GetKind() == "Pod" && u.GetAPIVersion() == "v1" && old == nil:
		_ = unstructured.SetNestedField(u.Object, "Pending", "status", "phase")
	}
}

// decodeDelete decodes the options of a deletion.
func (x *exchange) decodeDelete() (metav1.DeleteOptions, error) {
	var out metav1.DeleteOptions
	body, media, err := x.readBody()
	if err != nil {
		return out, err
	}
	if len(body) > 0 {
		if media == protobufType {
			_, _, err = decoder.Decode(body, nil, &out)
		} else if body, err = toJSON(body); err == nil {
			err = json.Unmarshal(body, &out)
		}
	}

	if err != nil {
		return out, apierrors.NewBadRequest(err.Error())
	}
	if dryRun := x.q["dryRun"]; len(dryRun) > 0 {
		out.DryRun = dryRun
	}
	if policy := x.q.Get("propagationPolicy"); policy != "" {
		out.PropagationPolicy = new(metav1.DeletionPropagation(policy))
	}

	return out, nil
}

// marshal returns the JSON of a value that has one: it was JSON before, or is of
// a type of the API.
func marshal(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("fakeapi: " + err.Error())
	}
	return raw
}

func writeJSON(w http.ResponseWriter, code int, body any) { writeRaw(w, code, marshal(body)) }

func writeRaw(w http.ResponseWriter, code int, raw []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// Not append: raw may be the stored object, which others read at the same
	// time.
	_, _ = w.Write(raw)
	_, _ = w.Write([]byte{'\n'})
}

// writeError responds with an error that is an API status.
func writeError(w http.ResponseWriter, err error) {
	if errors.Is(err, errNoPath) {
		http.Error(w, errNoPath.Error(), http.StatusNotFound)
		return
	}
	status := statusOf(err)
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	writeJSON(w, int(status.Code), status)
}

func statusOf(err error) metav1.Status {
	api := apierrors.APIStatus(apierrors.NewInternalError(err))
	_ = errors.As(err, &api)
	status := api.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}

	return status
}

// form is how a response represents objects.
type form struct {
	apiVersion string
	kind       string
	partial    bool // metadata only
	without    []string
	bytes      int // of versions; 0 for plain numbers
}

func (x *exchange) form() form {
	k := x.table.kind
	out := form{
		apiVersion: x.apiVersion(), kind: k.Kind,
		partial: strings.Contains(x.r.Header.Get("Accept"), "as=PartialObjectMetadata"),
		bytes:   k.ObjectVersionBytes,
	}
	if k.NoUID {
		out.without = append(out.without, "uid")
	}
	if k.NoVersions {
		out.without = append(out.without, "resourceVersion")
	}
	return out
}

// of returns an object's JSON in the form.
func (f form) of(v *version) []byte {
	if len(f.without) > 0 || f.bytes > 0 {
		v = f.odd(v)
	}
	if !f.partial {
		return v.in(f.apiVersion)
	}
	return marshal(map[string]any{
		"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": v.obj["metadata"],
	})
}

// odd returns an object with a version of the kind's length, and without the
// metadata that its kind lacks.
func (f form) odd(v *version) *version {
	u := v.copy()
	u.SetResourceVersion(worded(v.rv, f.bytes))
	for _, field := range f.without {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	return &version{rv: v.rv, obj: u.Object, raw: marshal(u.Object)}
}
