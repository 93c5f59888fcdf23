// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// estimate feeds a document in pieces, which may split tokens.
func estimate(t reflect.Type, doc string, piece int) *Meter {
	m := New(t)
	for len(doc) > 0 {
		n := min(piece, len(doc))
		m.Feed([]byte(doc[:n]))
		doc = doc[n:]
	}
	return m
}

// heap returns how many bytes of heap the decoded document takes.
func heap(t *testing.T, into any, doc string) int64 {
	t.Helper()
	var before, after runtime.MemStats
	data := []byte(doc)
	runtime.GC()
	runtime.ReadMemStats(&before)
	_ = utiljson.Unmarshal(data, into) // values that do not fit are skipped, and the rest is decoded
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(into)
	runtime.KeepAlive(data)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc) //nolint:gosec // both are small
}

// many repeats an element. If the element has a placeholder for its number,
// many fills it in.
func many(before, element, after string) string {
	const n = 3000
	var b strings.Builder
	b.WriteString(before)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strings.ReplaceAll(element, "#", fmt.Sprint(i)))
	}
	b.WriteString(after)
	return b.String()
}

// TestHazardSmallDocumentsThatAreLarge: no document may take more than the
// estimate.
func TestHazardSmallDocumentsThatAreLarge(t *testing.T) {
	type anything = map[string]any
	for name, c := range map[string]struct {
		into any
		doc  string
	}{
		"empty items":           {&corev1.PodList{}, many(`{"items":[`, `{}`, `]}`)},
		"null items":            {&corev1.PodList{}, many(`{"items":[`, `null`, `]}`)},
		"items of another type": {&corev1.PodList{}, many(`{"items":[`, `1`, `]}`)},
		"escaped keys":          {&corev1.PodList{}, many(`{"\u0069tems":[`, `{}`, `]}`)},
		"containers":            {&corev1.Pod{}, many(`{"spec":{"containers":[`, `{}`, `]}}`)},
		"probes": {&corev1.Pod{},
			many(`{"spec":{"containers":[`, `{"livenessProbe":{},"lifecycle":{"postStart":{}}}`, `]}}`)},
		"labels":      {&corev1.ConfigMap{}, many(`{"metadata":{"labels":{`, `"#":""`, `}}}`)},
		"maps of one": {&corev1.ConfigMapList{}, many(`{"items":[`, `{"data":{"a":""}}`, `]}`)},
		"owners": {&metav1.PartialObjectMetadata{},
			many(`{"metadata":{"ownerReferences":[`, `{"controller":true}`, `]}}`)},
		"managed fields": {&metav1.PartialObjectMetadata{},
			many(`{"metadata":{"managedFields":[`, `{"fieldsV1":{"a":[1,2]}}`, `]}}`)},
		"quantities": {&corev1.Pod{}, many(`{"spec":{"overhead":{`, `"#":"1"`, `}}}`)},
		"schemas":    {&apiextensionsv1.JSONSchemaProps{}, many(`{"properties":{`, `"#":{}`, `}}`)},
		"schemas in schemas": {&apiextensionsv1.JSONSchemaProps{},
			many(`{"items":{"properties":{`, `"#":{}`, `}}}`)},
		"lists of schemas": {&apiextensionsv1.JSONSchemaProps{}, many(`{"items":[`, `{}`, `]}`)},
		"defaults":         {&apiextensionsv1.JSONSchemaProps{}, many(`{"enum":[`, `{"a":[1]}`, `]}`)},
		"any: empty maps":  {&anything{}, many(`{"a":[`, `{}`, `]}`)},
		"any: maps of one": {&anything{}, many(`{"a":[`, `{"a":1}`, `]}`)},
		"any: maps of nine": {&anything{},
			many(`{"a":[`, `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`, `]}`)},
		"any: one map":      {&anything{}, many(`{`, `"#":"#"`, `}`)},
		"any: empty arrays": {&anything{}, many(`{"a":[`, `[]`, `]}`)},
		"any: numbers":      {&anything{}, many(`{"a":[`, `#`, `]}`)},
		"any: texts":        {&anything{}, many(`{"a":[`, `"#"`, `]}`)},
		"any: deep": {&anything{},
			many(`{"a":[`, strings.Repeat(`{"a":`, 20)+"1"+strings.Repeat("}", 20), `]}`)},
	} {
		t.Run(name, func(t *testing.T) {
			m := estimate(reflect.TypeOf(c.into), c.doc, 7)
			taken := heap(t, c.into, c.doc)
			t.Logf("%d bytes, %d in memory, estimated %d", len(c.doc), taken, m.Cost())
			require.GreaterOrEqual(t, m.Cost(), taken*95/100)
			require.Equal(t, m.Cost(), estimate(reflect.TypeOf(c.into), c.doc, 1<<20).Cost(),
				"pieces make no difference")
		})
	}
}

// TestUsualDocumentsAreFarFromTheLimits: an estimate must not cause real
// documents to be refused.
func TestUsualDocumentsAreFarFromTheLimits(t *testing.T) {
	var pod corev1.Pod
	require.NoError(t, json.Unmarshal([]byte(usualPod), &pod))
	for _, into := range []any{&corev1.PodList{}, &metav1.PartialObjectMetadataList{}, &map[string]any{}} {
		doc := many(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`, usualPod, `]}`)
		doc = doc[:strings.Index(doc, usualPod)] + strings.Repeat(usualPod+",", 500) + usualPod + "]}"
		m := estimate(reflect.TypeOf(into), doc, 4096)
		taken := heap(t, into, doc)
		t.Logf("%T: %d bytes, %d in memory, estimated %d", into, len(doc), taken, m.Cost())
		require.Less(t, m.Cost(), 3*taken)
		require.Less(t, m.Cost(), 10*int64(len(doc)))
		version, kind := m.TypeMeta()
		require.Equal(t, []string{"v1", "PodList"}, []string{version, kind})
	}
}

func TestWhatNestsTooDeepOrIsMostlySpaceIsExcessive(t *testing.T) {
	into := reflect.TypeFor[map[string]any]()
	require.EqualValues(t, excessive, estimate(into, `{"a":`+strings.Repeat("[", maxDepth+1), 4096).Cost())
	require.EqualValues(t, excessive, estimate(into, `{"a":`+strings.Repeat(" ", maxSpace+1), 4096).Cost())
	require.Less(t, estimate(into, `{"a":`+strings.Repeat(" ", maxSpace), 4096).Cost(), int64(1024))
}

func TestTypeMetaIsThatOfTheDocument(t *testing.T) {
	m := New(reflect.TypeFor[corev1.Pod]())
	m.Feed([]byte(`{"spec":{"kind":"No"},"ki\u006ed":"P\u006fd","x":[{"kind":"No"}],"apiVersion":"v1"}`))
	version, kind := m.TypeMeta()
	require.Equal(t, []string{"v1", "Pod"}, []string{version, kind})
	m.Next()
	m.Feed([]byte(`["kind","Pod"]`))
	version, kind = m.TypeMeta()
	require.Empty(t, version+kind)
}

func TestNamesAreThoseOfTheDocumentsMetadata(t *testing.T) {
	for doc, want := range map[string][]string{
		`{"metadata":{"labels":{"name":"no"},"na\u006de":"\u006fne","namespace":"default","x":[{"name":"no"}]},` +
			`"spec":{"metadata":{"name":"no"}}}`: {"default", "one"},
		`{"metadata":[{"name":"no"}],"name":"no"}`:   {"", ""},
		`[{"metadata":{"name":"no"}}]`:               {"", ""},
		`{"x":{"metadata":{"name":"no"}}}`:           {"", ""},
		`{"metadata":{"name":{"name":"no"},"a":""}}`: {"", ""},
	} {
		for _, into := range []reflect.Type{reflect.TypeFor[corev1.Pod](), reflect.TypeFor[metav1.Status](),
			reflect.TypeFor[map[string]any]()} {
			m := New(into)
			m.Feed([]byte(doc))
			namespace, name := m.Named()
			require.Equal(t, want, []string{namespace, name}, doc)
			m.Next()
			namespace, name = m.Named()
			require.Empty(t, namespace+name)
		}
	}
}

func TestIdentityIsThatOfTheObjectOrOfTheOneAStatusIsAbout(t *testing.T) {
	for doc, want := range map[string][]string{
		`{"kind":"Pod","metadata":{"uid":"a","resourceVersion":"5","x":{"uid":"no"}}}`:       {"a", "5"},
		`{"details":{"uid":"b","kind":"pods"},"metadata":{},"kind":"Status"}`:                {"b", ""},
		`{"kind":"Widget","details":{"uid":"no"},"metadata":{"uid":"a"}}`:                    {"a", ""},
		`{"kind":"Status","details":{"causes":[{"uid":"no"}]},"x":{"details":{"uid":"no"}}}`: {"", ""},
	} {
		m := New(reflect.TypeFor[metav1.Status]())
		m.Feed([]byte(doc))
		uid, version := m.Identified()
		require.Equal(t, want, []string{uid, version}, doc)
		m.Next()
		uid, version = m.Identified()
		require.Empty(t, uid+version)
	}
}

func BenchmarkFeed(b *testing.B) {
	m := New(reflect.TypeFor[corev1.Pod]())
	doc := []byte(usualPod)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		m.Next()
		m.Feed(doc)
	}
}

const usualPod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-5d9c7b8f6d-x2x7k",` +
	`"generateName":"web-5d9c7b8f6d-","namespace":"production",` +
	`"uid":"3b241101-e2bb-4255-8caf-4136c566a962","resourceVersion":"123456789",` +
	`"creationTimestamp":"2026-01-02T03:04:05Z",` +
	`"labels":{"app.kubernetes.io/name":"web","pod-template-hash":"5d9c7b8f6d"},` +
	`"annotations":{"example.com/checksum":"0123456789abcdef"},` +
	`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d9c7b8f6d",` +
	`"uid":"9b241101-e2bb-4255-8caf-4136c566a962","controller":true,"blockOwnerDeletion":true}],` +
	`"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1",` +
	`"time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1",` +
	`"fieldsV1":{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/name":{},` +
	`"f:pod-template-hash":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},` +
	`"f:name":{}}}}}}]},` +
	`"spec":{"volumes":[{"name":"token","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,` +
	`"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}],` +
	`"defaultMode":420}}],` +
	`"containers":[{"name":"web","image":"registry.example.com/web:1.2.3","ports":[{"containerPort":8080,` +
	`"protocol":"TCP"}],"env":[{"name":"A","value":"b"}],` +
	`"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m","memory":"512Mi"}},` +
	`"volumeMounts":[{"name":"token","readOnly":true,"mountPath":"/var/run/secrets"}],` +
	`"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always",` +
	`"nodeName":"node-1","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists",` +
	`"effect":"NoExecute","tolerationSeconds":300}]},` +
	`"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastProbeTime":null,` +
	`"lastTransitionTime":"2026-01-02T03:04:05Z"}],"hostIP":"10.0.0.1","podIP":"10.1.2.3",` +
	`"podIPs":[{"ip":"10.1.2.3"}],"startTime":"2026-01-02T03:04:05Z",` +
	`"containerStatuses":[{"name":"web","state":{"running":{"startedAt":"2026-01-02T03:04:05Z"}},"lastState":{},` +
	`"ready":true,"restartCount":0,"image":"registry.example.com/web:1.2.3","imageID":"","started":true}],` +
	`"qosClass":"Burstable"}}`
