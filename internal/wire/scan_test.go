// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/repeat"
	"github.com/fleetcache/fleetcache/internal/wire"
	"github.com/fleetcache/fleetcache/internal/wire/wiretest"
)

func TestScanFindsTheMetadataOfAPod(t *testing.T) {
	pod := wiretest.Pod(7)
	it, err := wire.Scan(pod)
	require.NoError(t, err)
	want, err := decode(pod)
	require.NoError(t, err)
	requireSameMeaning(t, want, &it)
	require.NotEmpty(t, it.Name)
	require.NotContains(t, string(strip(nil, &it)), "managedFields")
}

func TestItemOutlivesTheScannedBytes(t *testing.T) {
	pod := wiretest.Pod(7)
	it, err := wire.Scan(pod)
	require.NoError(t, err)
	name, uid := it.Name, it.UID
	other, err := wire.Scan(wiretest.Pod(7))
	require.NoError(t, err)
	clear(pod)
	require.Equal(t, other.Name, name)
	require.Equal(t, other.UID, uid)
}

func TestMembersKeepTheirBytesAsSent(t *testing.T) {
	it, err := wire.Scan(
		[]byte(`{ "kind":"X", "spec": {"a" : 1.50, "b":"\u0041"} ,"metadata":{"name":"n","managedFields":[1],` +
			`"x":{ }},"apiVersion":"v1","z":[ ]}`))
	require.NoError(t, err)
	require.Equal(t, `{"metadata":{"name":"n","x":{ }},"spec": {"a" : 1.50, "b":"\u0041"},"z":[ ]}`,
		string(strip(nil, &it)))
}

func TestMembersAreAsManyAsSent(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"metadata":{"name":"n"`)
	for i := range 40 {
		b.WriteString(`,"x` + strings.Repeat("y", i) + `":1`)
	}
	b.WriteString(`}`)
	for i := range 40 {
		b.WriteString(`,"x` + strings.Repeat("y", i) + `":{}`)
	}
	b.WriteString(`}`)
	it, err := wire.Scan([]byte(b.String()))
	require.NoError(t, err)
	require.JSONEq(t, b.String(), string(strip(nil, &it)))
}

// TestRepeatedKeysMeanTheLastOneEverywhere: an object with repeated keys must
// not mean one thing to a check and another to a later decoder of the stored
// bytes.
func TestRepeatedKeysMeanTheLastOneEverywhere(t *testing.T) {
	it, err := wire.Scan(
		[]byte(`{"metadata":{"name":"first","labels":{"a":"1"}},"metadata":{"name":"second","n\u0061me":"third",` +
			`"uid":"u"},"kind":"A","kind":"B"}`))
	require.NoError(t, err)
	require.Equal(t, "third", it.Name)
	require.Equal(t, "B", it.Kind)
	require.Nil(t, it.Labels)
	require.Equal(t, `{"metadata":{"name":"third","uid":"u"}}`, string(strip(nil, &it)))
}

func TestRepeatedOwnerFieldsMeanTheLastOne(t *testing.T) {
	it, err := wire.Scan([]byte(`{"metadata":{"ownerReferences":[{"uid":"a","uid":null}]}}`))
	require.NoError(t, err)
	require.Equal(t, `[{"uid":null}]`, string(it.OwnerReferences))
}

func TestOwnerReferencesMayHoldUnknownFields(t *testing.T) {
	const owners = `[{"uid":"u","x":[1,{}],"controller":null,"blockOwnerDeletion":false,"y":1.5}, {}]`
	it, err := wire.Scan([]byte(`{"metadata":{"ownerReferences":` + owners + `}}`))
	require.NoError(t, err)
	require.Equal(t, owners, string(it.OwnerReferences))
}

func TestRepeatedMetadataMeansTheLastOne(t *testing.T) {
	it, err := wire.Scan([]byte(`{"metadata":{"name":"a","uid":"u","name":null}}`))
	require.NoError(t, err)
	require.Empty(t, it.Name)
	require.Equal(t, `{"metadata":{"name":null,"uid":"u"}}`, string(strip(nil, &it)))
}

func TestAppendMetadataLeavesOutWhatTheHeaderHolds(t *testing.T) {
	it, err := wire.Scan([]byte(`{"metadata":{"name":"a","uid":"u","x":1,"labels":{}},"spec":{}}`))
	require.NoError(t, err)
	require.Equal(t, `"x":1`, string(it.AppendMetadata(nil, wire.FieldName|wire.FieldUID|wire.FieldLabels)))
	require.Equal(t, `"uid":"u","x":1`, string(it.AppendMetadata(nil, wire.FieldName|wire.FieldLabels)))
	require.Equal(t, `"x":1`, string(it.AppendMetadata(nil, ^wire.Fields(0))))
	require.Equal(t, `"spec":{}`, string(it.AppendRest(nil)))
	require.Equal(t, wire.FieldName|wire.FieldUID|wire.FieldLabels, it.Has())
}

func TestWrongTypesAreRefusedByName(t *testing.T) {
	for field, values := range map[string][]string{
		"kind":                       {`1`, `{}`},
		"apiVersion":                 {`[]`, `true`},
		"metadata":                   {`1`, `"x"`, `[]`},
		"name":                       {`1`, `{}`, `true`},
		"generateName":               {`1`},
		"namespace":                  {`[]`},
		"uid":                        {`12`},
		"resourceVersion":            {`12`},
		"generation":                 {`"1"`, `1.0`, `1e3`, `9223372036854775808`, `{}`},
		"deletionGracePeriodSeconds": {`"1"`, `0.5`},
		"creationTimestamp": {`1`, `""`, `"yesterday"`, `"2025-02-30T00:00:00Z"`, `"2025-13-01T00:00:00Z"`,
			`"2025-01-01"`},
		"deletionTimestamp": {`true`, `"2025-01-01T24:00:00Z"`},
		"labels":            {`[]`, `{"a":1}`, `{"a":{}}`, `"x"`},
		"annotations":       {`1`, `{"a":true}`},
		"ownerReferences":   {`{}`, `[1]`, `[null]`, `[{"uid":1}]`, `[{"controller":"true"}]`, `"x"`},
		"finalizers":        {`{}`, `[1]`, `[null]`, `"x"`},
	} {
		for _, value := range values {
			object, path := `{"metadata":{"`+field+`":`+value+`}}`, "metadata."+field
			if field == "kind" || field == "apiVersion" || field == "metadata" {
				object, path = `{"`+field+`":`+value+`}`, field
			}
			_, err := wire.Scan([]byte(object))
			var refused *wire.FieldError
			require.ErrorAs(t, err, &refused, object)
			require.Equal(t, path, refused.Field)
		}
	}
}

func TestNullIsAbsent(t *testing.T) {
	it, err := wire.Scan(
		[]byte(`{"kind":null,"metadata":{"name":null,"generation":null,"creationTimestamp":null,"labels":null,` +
			`"annotations":null,"ownerReferences":null,"finalizers":null,"managedFields":null}}`))
	require.NoError(t, err)
	require.Empty(t, it.Name+it.Kind+it.CreationTimestamp)
	require.Nil(t, it.Labels)
	require.Nil(t, it.OwnerReferences)
	require.JSONEq(t, `{"metadata":{"name":null,"generation":null,"creationTimestamp":null,"labels":null,`+
		`"annotations":null,"ownerReferences":null,"finalizers":null}}`, string(strip(nil, &it)))
}

func TestNestingIsLimitedAsInEncodingJSON(t *testing.T) {
	nested := func(n int) []byte {
		return []byte(`{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`)
	}
	_, err := wire.Scan(nested(wire.MaxDepth))
	require.NoError(t, err)
	require.True(t, json.Valid(nested(wire.MaxDepth)))
	for _, object := range [][]byte{nested(wire.MaxDepth + 2), []byte(strings.Repeat(`{"a":`, 1_000_000))} {
		_, err = wire.Scan(object)
		var limit *wire.LimitError
		require.ErrorAs(t, err, &limit)
		require.EqualValues(t, wire.MaxDepth, limit.Limit)
	}
}

// TestNestingIsKeptOverTheBordersOfWords: the nesting is stored in words of 64
// levels.
func TestNestingIsKeptOverTheBordersOfWords(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var object, closing []byte
		object = append(object, `{"a":`...)
		for range 100 + r.IntN(400) {
			switch n := len(closing); {
			case n > 0 && r.IntN(3) == 0:
				object, closing = append(append(object, "1"...), closing[n-1]), closing[:n-1]
				if n == 1 {
					object = append(object, `,"b":`...)
				} else if closing[n-2] == ']' {
					object = append(object, ',')
				} else {
					object = append(object, `,"c":`...)
				}
			case r.IntN(2) == 0:
				object, closing = append(object, '['), append(closing, ']')
			default:
				object, closing = append(object, `{"d":`...), append(closing, '}')
			}
		}
		object = append(object, '1')
		if r.IntN(2) == 0 && len(closing) > 1 { // break it
			i := r.IntN(len(closing) - 1)
			closing[i], closing[i+1] = closing[i+1], closing[i]
		}
		slices.Reverse(closing)
		object = append(append(object, closing...), '}')
		_, err := wire.Scan(object)
		require.Equal(t, json.Valid(object), err == nil, "%s", object)
	}
}

// TestErrorsHoldNoValues: no value of a refused object may reach a log through
// the error.
func TestErrorsHoldNoValues(t *testing.T) {
	const canary = "hunter2"
	for _, object := range []string{
		`{"data":{"password":"` + canary + `"},"metadata":{"name":1}}`,
		`{"data":{"password":"` + canary + `",}}`, `{"data":"` + canary, `{"metadata":{"generation":"` + canary + `"}}`,
		`{"metadata":{"creationTimestamp":"` + canary + `"}}`, `{"metadata":{"labels":{"` + canary + `":1}}}`,
		`{"metadata":{"finalizers":"` + canary + `"}}`,
		`"` + canary + `"`, `{"` + canary + `":01}`, `{"` + canary + `" 1}`, `{"data":"` + canary + `"}` + canary,
	} {
		_, err := wire.Scan([]byte(object))
		require.Error(t, err, object)
		require.NotContains(t, err.Error(), canary)
		requireTyped(t, err)
		_, err = wire.NewListReader(strings.NewReader(object), wire.Limits{}).Next()
		require.NotContains(t, err.Error(), canary)
		_, err = wire.NewFrameReader(strings.NewReader(object), wire.Limits{}).Next()
		require.NotContains(t, err.Error(), canary)
	}
}

func TestSyntaxErrorsSayWhere(t *testing.T) {
	_, err := wire.Scan([]byte(`{"a":1,"b":tru}`))
	var syntax *wire.SyntaxError
	require.ErrorAs(t, err, &syntax)
	require.EqualValues(t, 11, syntax.Offset)

	l := wire.NewListReader(&pieces{[]byte(`{"items":[{},{}],  "a": 01}`), 3}, wire.Limits{})
	for err = nil; err == nil; {
		_, err = l.Next()
	}
	require.ErrorAs(t, err, &syntax)
	require.EqualValues(t, 25, syntax.Offset)

	f := wire.NewFrameReader(&pieces{[]byte("{\"type\":\"ADDED\",\"object\":{}}\n{\"object\":{},}"), 3}, wire.Limits{})
	for err = nil; err == nil; {
		_, err = f.Next()
	}
	require.ErrorAs(t, err, &syntax)
	require.EqualValues(t, 42, syntax.Offset)
}

func TestAnnotationOfABookmark(t *testing.T) {
	it, err := wire.Scan(
		[]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"77","creationTimestamp":null,` +
			`"annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}`))
	require.NoError(t, err)
	value, ok := it.Annotation("k8s.io/initial-events-end")
	require.True(t, ok)
	require.Equal(t, "true", value)
	_, ok = it.Annotation("other")
	require.False(t, ok)
	require.Equal(t, "77", it.ResourceVersion)
}

func TestScanAllocatesOnlyTheStrings(t *testing.T) {
	pod := wiretest.Pod(1)
	dst := make([]byte, 0, len(pod))
	allocs := testing.AllocsPerRun(100, func() {
		it, err := wire.Scan(pod)
		if err != nil {
			panic(err)
		}
		dst = strip(dst[:0], &it)
	})
	require.LessOrEqual(t, allocs, 1.0)
}

func TestExpectNamesTheFieldThatIsNotAsExpected(t *testing.T) {
	good := wire.Item{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "n", UID: "u", ResourceVersion: "1"}
	pods := wire.Expect{APIVersion: "v1", Kind: "Pod"}
	require.NoError(t, pods.Check(good))
	require.NoError(t, wire.Expect{}.Check(wire.Item{Name: "n", UID: "u", ResourceVersion: "x"}))
	untyped := good
	untyped.APIVersion, untyped.Kind = "", ""
	require.NoError(t, pods.Check(untyped), "items of typed lists have neither kind nor apiVersion")

	for name, c := range map[string]struct {
		field  string
		expect wire.Expect
		change func(*wire.Item)
	}{
		"a Secret among Pods":   {"kind", pods, func(it *wire.Item) { it.Kind = "Secret" }},
		"another version":       {"apiVersion", pods, func(it *wire.Item) { it.APIVersion = "v2" }},
		"no name":               {"metadata.name", pods, func(it *wire.Item) { it.Name = "" }},
		"a path as name":        {"metadata.name", pods, func(it *wire.Item) { it.Name = "a/../b" }},
		"the parent as name":    {"metadata.name", pods, func(it *wire.Item) { it.Name = ".." }},
		"the directory as name": {"metadata.name", pods, func(it *wire.Item) { it.Name = "." }},
		"an escape as name":     {"metadata.name", pods, func(it *wire.Item) { it.Name = "%2e" }},
		"a path as namespace":   {"metadata.namespace", pods, func(it *wire.Item) { it.Namespace = "a/b" }},
		"no namespace where one is due": {"metadata.namespace", wire.Expect{Namespace: "ns"},
			func(it *wire.Item) { it.Namespace = "" }},
		"another namespace": {"metadata.namespace", wire.Expect{Namespace: "ns"},
			func(it *wire.Item) { it.Namespace = "OTHER" }},
		"no uid": {"metadata.uid", pods, func(it *wire.Item) { it.UID = "" }},
		"no version": {"metadata.resourceVersion", pods,
			func(it *wire.Item) { it.ResourceVersion = "" }},
	} {
		it := good
		c.change(&it)
		err := c.expect.Check(it)
		var refused *wire.FieldError
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, c.field, refused.Field, name)
	}
}

func TestExcerptsOfNamesAreShortAndPrintable(t *testing.T) {
	err := wire.Expect{Kind: "Pod"}.Check(wire.Item{Kind: "\x1b[31m" + strings.Repeat("é", 1<<20)})
	require.Less(t, len(err.Error()), 600)
	for _, c := range []byte(err.Error()) {
		require.True(t, ' ' <= c && c <= '~', "%q", err)
	}
}

func TestSyntaxErrorOfACutOffListIsUnexpectedEOF(t *testing.T) {
	for _, page := range []string{``, `{`, `{"items":[`, `{"items":[{"a":`, `{"items":[{}]`,
		`{"items":[{}],"metadata":{"continue":`, `{"items":[12`} {
		_, _, err := readList([]byte(page), 3, false)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, page)
		require.NotErrorIs(t, err, io.EOF)
		requireTyped(t, err)
	}
}

// TestReadingPartsStopsAtInvalidBytes: functions that later read parts of an
// object must stop at bytes that are not JSON, and must not guess.
func TestReadingPartsStopsAtInvalidBytes(t *testing.T) {
	for _, b := range []string{``, `x`, `[`, `{`, `{"a"`, `{"a":`, `{"a":}`, `{"a":1`, `{"a":1;`, `{1:2}`, `["a"`,
		`["a";`, `[}`} {
		seen := 0
		for range wire.Members([]byte(b)) {
			seen++
		}
		for range wire.Strings([]byte(b)) {
			seen++
		}
		for range wire.StringMap([]byte(b)) {
			seen++
		}
		require.LessOrEqual(t, seen, 2, b)
		_, ok := wire.Lookup([]byte(b), "b")
		require.False(t, ok)
	}
	for k, v := range wire.StringMap([]byte(`{"a":"b","c":null}`)) {
		require.Equal(t, "a", k)
		require.Equal(t, "b", v)
		break
	}
	for s := range wire.Strings([]byte(`["a","b"]`)) {
		require.Equal(t, "a", s)
		break
	}
	require.Equal(t, "more than 7 object bytes", (&wire.LimitError{What: "object bytes", Limit: 7}).Error())
	require.Equal(t, "document is not a JSON object", (&wire.FieldError{Reason: "is not a JSON object"}).Error())
}

// TestLiteralsStandForWhatTheLibrarySays: whatever escapes they have.
func TestLiteralsStandForWhatTheLibrarySays(t *testing.T) {
	pieces := []string{
		`\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`, `\u0041`, `\u00e9`,
		`\ud83d\ude00`, `\ud83d`, `\udc00`, `\u0000`,
		"k:{", "é", "\xff", "\xe2\x82", "plain", "",
	}
	r := rand.New(rand.NewPCG(11, 12))
	for range repeat.Times(20_000) {
		text := []byte(`"`)
		for range r.IntN(6) {
			text = append(text, pieces[r.IntN(len(pieces))]...)
		}
		text = append(text, '"')
		var want string
		require.NoError(t, json.Unmarshal(text, &want))
		require.Equal(t, want, wire.String(text), "%s", text)
		require.Equal(t, "before"+want, string(wire.AppendText([]byte("before"), text)), "%s", text)
	}
}
