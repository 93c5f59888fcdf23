// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// FuzzPack packs every object that Scan accepts, with and without a dictionary,
// and compares all forms in which it can be read with the JSON library's
// result.
func FuzzPack(f *testing.F) {
	for _, s := range objectSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		it, err := wire.Scan(raw)
		if err != nil || !it.HasMetadata() {
			return
		}
		gv, err := schema.ParseGroupVersion(it.APIVersion)
		if err != nil || it.APIVersion == "" || it.Kind == "" || gv.String() != it.APIVersion {
			return
		}
		c := NewCodec()
		k := c.Kind(gv.WithKind(it.Kind))
		keep := train(t, c, k, raw)
		_, err = c.Pack(k, it)
		require.NoError(t, err)
		c.DropManagedFields = true // as strip does
		o, err := c.Pack(k, it)
		require.NoError(t, err)
		stripped := strip(nil, &it) // with repeated keys resolved
		requireSameObject(t, stripped, o)
		requireSameInto(t, stripped, o, &zoo{})
		requireSameInto(t, stripped, o, &corev1.Pod{})
		requireSameInto(t, stripped, o, &metav1.PartialObjectMetadata{})
		other := NewCodec().withKind(k)
		other.DropManagedFields = true
		require.True(t, o.SameContent(mustPack(t, other, k, raw)))
		require.NotEmpty(t, keep)
	})
}

// strip appends the object of an item without apiVersion, kind and
// managedFields.
func strip(dst []byte, it *wire.Item) []byte {
	dst = append(dst, '{')
	if it.HasMetadata() {
		dst = append(it.AppendMetadata(append(dst, `"metadata":{`...), wire.FieldManagedFields), "},"...)
	}
	from := len(dst)
	if dst = it.AppendRest(dst); len(dst) == from && it.HasMetadata() {
		dst = dst[:from-1]
	}
	return append(dst, '}')
}

// train makes a dictionary of everything in an object except its identity.
func train(t *testing.T, c *Codec, k *Kind, raw []byte) []*Object {
	var u unstructured.Unstructured
	require.NoError(t, json.Unmarshal(raw, &u.Object))
	u.SetGroupVersionKind(k.GVK())
	var keep []*Object
	for i := range samples {
		u.SetUID(types.UID("00000000-0000-4000-8000-00000000000" + strconv.Itoa(i)))
		u.SetName("sample-" + strconv.Itoa(i))
		o, err := c.PackUnstructured(k, &u)
		require.NoError(t, err)
		keep = append(keep, o)
	}
	return keep
}

// requireSameInto compares Into with the library: both must return the same
// object, or both must refuse it.
func requireSameInto(t *testing.T, raw []byte, o *Object, form runtime.Object) {
	t.Helper()
	typ := reflect.TypeOf(form).Elem()
	want := reflect.New(typ).Interface().(runtime.Object)
	got := reflect.New(typ).Interface().(runtime.Object)
	wantErr := json.Unmarshal(raw, want)
	err := o.Into(got)
	if wantErr != nil {
		require.ErrorIs(t, err, ErrMismatch)
		require.Equal(t, reflect.New(typ).Interface(), got, "left behind by a failed decode")
		return
	}
	require.NoError(t, err)
	want.GetObjectKind().SetGroupVersionKind(o.Kind().GVK())
	require.Equal(t, want, got)
}

// objectSeeds are objects with content that could be lost or misread.
var objectSeeds = []string{
	`{"apiVersion":"v1","kind":"Zoo","metadata":{}}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{"name":"n","namespace":"ns",` +
		`"uid":"0b5c4f6e-1111-4222-8333-944445555666","resourceVersion":"42","generation":7,` +
		`"creationTimestamp":"2025-03-01T10:00:00Z"},"spec":{}}`,
	`{"apiVersion":"x.io/v1","kind":"Zoo","metadata":{"name":"","namespace":null,"uid":"UPPER",` +
		`"resourceVersion":"007","generation":0,"creationTimestamp":null}}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{"generation":-5,"creationTimestamp":"2025-03-01T10:00:00.25+02:00",` +
		`"deletionTimestamp":"2025-03-01T10:00:01Z","deletionGracePeriodSeconds":0}}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{"generation":5000000000,"resourceVersion":"18446744073709551616",` +
		`"uid":"0B5C4F6E-1111-4222-8333-944445555666"}}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{"labels":{},"annotations":{},"ownerReferences":[],"finalizers":[]}}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{"labels":null,"annotations":null,"ownerReferences":null,` +
		`"finalizers":null,"managedFields":null}}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{"labels":{"a":null,"b":"","\u0063":"\ud83d\ude00"},` +
		`"ownerReferences":[{"uid":"u","controller":null,"x":[1]},{"blockOwnerDeletion":false}]}}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{"creationTimestamp":"0001-01-01T00:00:00Z",` +
		`"unknown":{"a":[1.0,1,-0,1e2,12345678901234567890,0.1]}}}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{},"int":1,"string":"s","bytes":"AQID","slice":["a"],` +
		`"map":{"k":{"int":2}},"any":{"deep":[[[]]]},"ptr":{"ptr":null},"embedded":"e","quantity":"100m",` +
		`"intOrString":"5%","time":"2025-01-01T00:00:00Z"}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{},"int":null,"string":null,"bytes":null,"slice":null,"map":null,` +
		`"any":null,"ptr":null,"quantity":null,"intOrString":null,"time":null,"raw":null}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{},"int":1.5}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{},"string":1}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{},"bytes":"!"}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{},"int8":300}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{},"map":{"a":{"int":1},"a":{"string":"s"}},"slice":[],` +
		`"raw":{"a": 1},"weird":"1"}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{},"ptr":{"int":1},"ptr":{"string":"merged"},"INT":5}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{},"uint":18446744073709551615,"float":1e-7,"array":[1,2,3],` +
		`"keyed":{"1":true},"number":1.50,"text":"10.0.0.1","iface":null}`,
	"{\"apiVersion\":\"v1\",\"kind\":\"Zoo\",\"metadata\":{},\"string\":\"\xff\\\"\\\\\",\"\xffkey\":1}",
	`{"apiVersion":"v1\u0001\"","kind":"Z\n\\oo","metadata":{"name":"\u0000\u001f\"\\/\u2028é","namespace":"\t",` +
		`"uid":"\r","resourceVersion":"\u0007"}}`,
	`{"apiVersion":"v1","kind":"Zoo","metadata":{},"shadow":{"embedded":"outer"}}`,
	` {"apiVersion" : "v1", "kind":"Zoo","metadata": {"name" :"n" , "labels": { "a" : "b" } , "x": 1 } , "slice": [ ` +
		`"a" , "b" ], "ptr": { }, "any": [ 1 , {} ] } `,
}

// FuzzTyped reads one field of a Go type from arbitrary JSON values.
func FuzzTyped(f *testing.F) {
	for field := range reflect.TypeFor[zoo]().Fields() {
		name, _ := fieldName(field)
		for _, value := range fieldSeeds {
			f.Add(name, []byte(value))
		}
	}
	c := NewCodec()
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Zoo"}
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		raw := append(appendQuoted([]byte(`{"apiVersion":"v1","kind":"Zoo","metadata":{"name":"n"},`), name), ':')
		raw = append(append(raw, value...), '}')
		it, err := wire.Scan(raw)
		if err != nil || it.Name == "" || it.Kind != "Zoo" || it.APIVersion != "v1" {
			return
		}
		k := newKind(gvk) // without a dictionary, which would depend on earlier inputs
		o, err := c.withKind(k).Pack(k, it)
		require.NoError(t, err)
		requireSameInto(t, strip(nil, &it), o, &zoo{})
		requireSameObject(t, strip(nil, &it), o)
	})
}

var fieldSeeds = []string{
	`null`, `true`, `0`, `-1`, `1.5`, `1e3`, `9223372036854775808`, `""`, `"a\u0041\n"`, `"AQID"`,
	`"2025-01-01T00:00:00Z"`, `"10"`, `"10.0.0.1"`,
	`[]`, `[null]`, `["a",null,"b"]`, `[[{"embedded":"x","other":3}],null,[]]`, `{}`, `{"a":null}`, `{"a":"b","a":"c"}`,
	`{"1":true}`, `{"10.0.0.1":1}`,
	`{"int":1,"string":"s","ptr":{"ptr":{"int":7}},"parts":{"x":{"list":[{},null]}}}`, `{"int":1,"int":2}`,
	`{"quoted":"5","embedded":"e"}`, `{"a":[1,{"b":2.0}]}`,
}

// FuzzBlock checks that blocks come back, and that others are refused or decoded
// without a panic.
func FuzzBlock(f *testing.F) {
	f.Add([]byte("a dictionary of some length, a dictionary"),
		[]byte("some source of length, some source, some length"), uint8(1))
	f.Add([]byte("0123456789abcdef"), []byte("0123456789abcdef0123456789abcdef"), uint8(40))
	f.Add([]byte("0123456789abcdefxxxxxxxx"), []byte("abcdef"), uint8(0))
	f.Add([]byte("a dictionary of some length"),
		[]byte("\"aGVsbG8gd29ybGQsIEkgYW0gYmFzZTY0IDEyMw\", 0123456789abcdef0123456789abcdef, "), uint8(2))
	f.Fuzz(func(t *testing.T, content, src []byte, repeat uint8) {
		for range repeat % 64 {
			src = append(src, src[:min(len(src), 997)]...)
		}
		d := testDictionary(content)
		if d == nil || len(src) > maxBlock {
			return
		}
		requireBlock(t, d, src)
		d.decode(make([]byte, len(content)), src, len(content))
	})
}
