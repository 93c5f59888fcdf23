// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/repeat"
)

// kubeconfig returns a kubeconfig with n bytes of certificates and keys.
func kubeconfig(i, n int) string {
	part := func(seed int) string { return inBase64(pemOf(uint64(3*i+seed), "CERTIFICATE", n/3)) }
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- name: c%d\n  cluster:\n"+
		"    server: https://c%d.example.com\n    certificate-authority-data: %s\nusers:\n- name: admin\n  user:\n"+
		"    client-certificate-data: %s\n    client-key-data: %s\n", i, i, part(0), part(1), part(2))
}

// TestPEMTakesAsMuchAsDER, in base64 or not, and a little for all else.
func TestPEMTakesAsMuchAsDER(t *testing.T) {
	ca := func(i int) string { return pemOf(uint64(i), "CERTIFICATE", certificateBytes) }
	other := func(kind, content string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"x.io/v1","kind":%q,"metadata":{"name":"n"},%s}`, kind, content)
	}
	requestGVK := schema.GroupVersionKind{Group: "x.io", Version: "v1", Kind: "Request"}
	for name, c := range map[string]struct {
		gvk    schema.GroupVersionKind
		bytes  int // in DER
		more   int
		object func(i int) []byte
	}{
		"TLS Secret": {secretGVK, 2*certificateBytes + keyBytes, 115, tlsSecret},
		"ConfigMap":  {configMapGVK, certificateBytes, 20, func(i int) []byte { return configMap(i, ca(i)) }},
		"certificates": {configMapGVK, 3 * certificateBytes, 40, func(i int) []byte {
			return configMap(i, ca(3*i)+ca(3*i+1)+ca(3*i+2))
		}},
		"caBundle": {secretGVK.GroupVersion().WithKind("Hooks"), certificateBytes, 30, func(i int) []byte {
			return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Hooks","metadata":{"name":"n","uid":"%d"},`+
				`"webhooks":[{"name":"a.x.io","clientConfig":{"caBundle":%q}}]}`, i, inBase64(ca(i)))
		}},
		"request": {requestGVK, 600, 20, func(i int) []byte {
			return other("Request", fmt.Sprintf(`"uid":"%d","spec":{"request":%q,"usages":["digital signature"]}`, i,
				inBase64(pemOf(uint64(i), "CERTIFICATE REQUEST", 600))))
		}},
		"kubeconfig": {secretGVK, 3000, 120, func(i int) []byte {
			return secret(i, "Opaque", "value", inBase64(kubeconfig(i, 3000)))
		}},
		"base64 of base64": {secretGVK, 3000, 80, func(i int) []byte {
			return secret(i, "helm.sh/release.v1", "release",
				inBase64(base64.StdEncoding.EncodeToString(randomBytes(uint64(i), 3000))))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			codec := NewCodec()
			k := codec.Kind(c.gvk)
			var keep []*Object
			for i := range samples {
				uid := fmt.Appendf(nil, `"name":"n","uid":"u%d"`, i)
				raw := bytes.Replace(c.object(10_000+i), []byte(`"name":"n"`), uid, 1)
				keep = append(keep, mustPack(t, codec, k, raw))
			}
			require.NotNil(t, k.dict.newest.Load())
			runtime.KeepAlive(keep)
			sum := 0
			for i := range 20 {
				o := mustPack(t, codec, k, c.object(i))
				sum += len(o.body)
				requireSameObject(t, c.object(i), o)
			}
			t.Logf("%d B of DER, %d B of JSON: %d B", c.bytes, len(c.object(0)), sum/20)
			require.Less(t, sum/20, c.bytes+c.more)
		})
	}
}

// TestTLSSecretCostsLittle checks what a Secret with two certificates and a key,
// 2,952 B in DER, takes of the heap.
func TestTLSSecretCostsLittle(t *testing.T) {
	const n = 1000
	raw := make([][]byte, n)
	for i := range raw {
		raw[i] = tlsSecret(i)
	}
	c := NewCodec()
	k := trainedBy(t, c, secretGVK, tlsSecret)
	objects := make([]*Object, n)
	size := 0
	before := liveHeap()
	for i := range objects {
		objects[i] = mustPack(t, c, k, raw[i])
		size += objects[i].Size()
	}
	held := int64(liveHeap()-before) / n
	t.Logf("%d B a Secret, %d B by Size", held, size/n)
	require.Less(t, held, int64(3300))
	require.Len(t, objects, n)
	runtime.KeepAlive(raw)
}

// TestTextThatIsNotQuitePEMComesBack: lines of other widths, other newlines, and
// base64 that no encoder would write.
func TestTextThatIsNotQuitePEMComesBack(t *testing.T) {
	c := NewCodec()
	k := trainedBy(t, c, secretGVK, tlsSecret)
	whole := pemOf(1, "CERTIFICATE", certificateBytes)
	texts := map[string]string{
		"PEM":                  whole,
		"two":                  whole + whole,
		"empty":                "",
		"header only":          "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
		"CRLF":                 strings.ReplaceAll(whole, "\n", "\r\n"),
		"no last newline":      strings.TrimSuffix(whole, "\n"),
		"indented":             strings.ReplaceAll(whole, "\n", "\n    "),
		"blank lines":          strings.ReplaceAll(whole, "\n", "\n\n"),
		"trailing blanks":      strings.ReplaceAll(whole, "\n", " \n"),
		"one line":             strings.ReplaceAll(whole, "\n", ""),
		"a short line":         whole[:100] + "\n" + whole[100:],
		"a long line":          strings.Replace(whole, "\n", "", 3),
		"no padding":           strings.ReplaceAll(whole, "=", ""),
		"more padding":         strings.ReplaceAll(whole, "==", "===="),
		"trailing bits":        strings.ReplaceAll(whole, "==", "/=="),
		"comments":             "Subject: CN=x, O=Ünïcode\n" + whole + "# äöü\n",
		"comments in ASCII":    "Subject: CN=x\nIssuer: CN=y\n" + whole,
		"NUL":                  whole + "\x00",
		"the marks":            "\x01" + whole + "\x02\x01\x02\x02",
		"no UTF-8":             whole + "\xff\xfe",
		"binary":               string(randomBytes(1, 2000)),
		"binary at the end":    whole + string(randomBytes(1, 200)),
		"kubeconfig":           kubeconfig(1, 3000),
		"escaped":              strings.ReplaceAll(whole, "\n", `\n`),
		"deep":                 inBase64(inBase64(inBase64(inBase64(inBase64(whole))))),
		"JSON":                 `{"auths":{"registry.example.com":{"auth":"` + strings.Repeat("p\\n", 60) + `"}}}`,
		"parameters, then key": pemOf(1, "EC PARAMETERS", 10) + pemOf(2, "EC PRIVATE KEY", 121),
	}
	for _, width := range []int{1, 32, 63, 65, 76, 255, 256, 1000} {
		texts[fmt.Sprint("width ", width)] = "-----BEGIN X-----\n" + inLines(7, 900, width, "\n") + "\n-----END X-----"
	}
	for n := range 6 {
		texts[fmt.Sprint("longer by ", n)] = whole + "12345"[:n%6]
	}
	for name, text := range texts {
		encoded := inBase64(text)
		for form, data := range map[string]string{
			"in base64":              encoded,
			"in base64 without pad":  strings.TrimRight(encoded, "="),
			"with more behind":       encoded + "AAAA" + encoded,
			"with trailing bits":     strings.Replace(encoded, "A==", "B==", 1),
			"with something before":  "n" + encoded,
			"with newlines":          strings.ReplaceAll(encoded, "LS0t", "\nLS0t"),
			"in base64 and in lines": inLines(3, len(text), 76, "\n"),
			"in base64 for URLs":     base64.URLEncoding.EncodeToString([]byte(text)),
			"in base64 twice":        inBase64(encoded),
			"as it is":               text,
		} {
			// Go and JSON have different escapes for these.
			if strings.ContainsAny(data, "\x00\x01\x02") || !utf8.ValidString(data) {
				continue
			}
			raw := secret(1, "Opaque", "a", data, "b", data, "c", "x")
			o := mustPack(t, c, k, raw)
			requireSameBytes(t, raw, o, name+", "+form)
			// An annotation with the whole object, as kubectl writes it.
			raw = bytes.Replace(raw, []byte(`"annotations":{`),
				fmt.Appendf(nil, `"annotations":{"last":%q,`, fmt.Sprintf(`{"data":{"a":%q}}`, data)), 1)
			requireSameBytes(t, raw, mustPack(t, c, k, raw), name+", "+form+", annotated")
		}
	}
}

// requireSameBytes requires that a body has the bytes that were packed.
func requireSameBytes(t *testing.T, raw []byte, o *Object, name string) {
	t.Helper()
	again := mustPack(t, NewCodec(), newKindOf(o), raw) // not compressed by a dictionary
	a, err := again.open(toEnd)
	require.NoError(t, err, name)
	defer a.close()
	for _, to := range []extent{toTexts, toMetadata, toEnd} {
		b, err := o.open(to)
		require.NoError(t, err, name)
		want, parts := a.s.plain, a.s.parts
		switch to {
		case toTexts:
			want, parts.metaLen = want[:a.s.texts()], 0
		case toMetadata:
			want = want[:a.s.texts()+a.s.metaLen]
		}
		require.Equal(t, string(want), string(b.s.plain), name)
		require.Equal(t, parts, b.s.parts, name)
		b.close()
	}
}

func newKindOf(o *Object) *Kind { return newKind(o.kind.gvk) }

// TestMetadataBesideNestedTextIsReadAlone: nothing behind it is decoded, also
// if it has nested text itself.
func TestMetadataBesideNestedTextIsReadAlone(t *testing.T) {
	c := NewCodec()
	k := trainedBy(t, c, secretGVK, tlsSecret)
	raw := bytes.Replace(tlsSecret(1), []byte(`"annotations":{`),
		fmt.Appendf(nil, `"annotations":{"ca":%q,`, inBase64(pemOf(5, "CERTIFICATE", certificateBytes))), 1)
	for _, raw := range [][]byte{tlsSecret(1), raw} {
		whole := mustPack(t, c, k, raw)
		require.Equal(t, string(codecNested), whole.body[:1])
		cut := *whole
		cut.body = whole.body[:len(whole.body)-4]
		require.ErrorIs(t, cut.Into(&unstructured.Unstructured{}), ErrCorrupt)

		var want, got metav1.PartialObjectMetadata
		require.NoError(t, whole.Into(&want))
		require.NoError(t, cut.Into(&got))
		require.Equal(t, want, got)
		require.Equal(t, want.Annotations, cut.GetAnnotations())
		require.Equal(t, want.Labels, cut.GetLabels())
		var full corev1.Secret
		require.NoError(t, whole.Into(&full))
		require.Equal(t, full.ObjectMeta, got.ObjectMeta)
		requireSameObject(t, raw, whole)
	}
}

// TestDamagedNestedTextIsRefused: marks without their counterparts, and texts in
// texts without an end.
func TestDamagedNestedTextIsRefused(t *testing.T) {
	c := NewCodec()
	k := trainedBy(t, c, secretGVK, tlsSecret)
	d := k.dict.newest.Load()
	for text, want := range map[string]bool{
		`"a":"b"`:                          true,
		"\x01":                             false,
		"\x01\x01x\x02":                    false,
		"\x01a\x01b\x01c\x02\x02\x02":      true,
		"\x01\x01\x01\x01\x02\x02\x02\x02": false,
		"\x01x\x02\x01":                    false,
	} {
		var s scratch
		_, ok := appendNested(nil, []byte(text))
		require.Equal(t, want, ok, "%q", text)
		s.plain = []byte(text)
		body := d.encode([]byte{codecNested, d.slot, 0, 0, 0, byte(len(text))}, s.plain)
		err := s.unseal(string(body), &k.dict, toEnd)
		require.Equal(t, want, err == nil, "%q", text)
	}
	for _, lens := range [][3]byte{{9, 0, 0}, {5, 5, 0}, {0, 0, 9}} {
		var s scratch
		body := d.encode([]byte{codecNested, d.slot, lens[0], lens[1], lens[2], 7}, []byte(`"a":"b"`))
		for _, to := range []extent{toTexts, toMetadata, toEnd} {
			err := s.unseal(string(body), &k.dict, to)
			require.True(t, err != nil || to == toTexts && lens[2] == 9)
		}
	}
}

// TestLongTextInBase64IsFound, wherever it is, and random data are not taken
// for it.
func TestLongTextInBase64IsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 17))
	for range repeat.Times(2000) {
		before := noise(r.Uint64(), r.IntN(300)) + `"`
		if r.IntN(2) == 0 {
			before = base64.StdEncoding.EncodeToString(randomBytes(r.Uint64(), 3*r.IntN(200))) + `","b":"`
		}
		text := strings.Repeat("some text, and more of it\n", 50)[:nestMin/4*3+r.IntN(900)]
		b := []byte(before + inBase64(text) + `"` + noise(r.Uint64(), r.IntN(300)))
		require.Equal(t, len(before), nextNested(b, 0), "%q", b)
	}
	for i := range repeat.Times(200) {
		require.Equal(t, -1, nextNested([]byte(inBase64(string(randomBytes(uint64(i), 5000)))), 0))
	}
}

// TestNestedTextIsInDictionaries as text, so that objects repeat it whatever
// precedes it.
func TestNestedTextIsInDictionaries(t *testing.T) {
	ca := pemOf(1, "CERTIFICATE", certificateBytes)
	c := NewCodec()
	k := trainedBy(t, c, secretGVK, func(i int) []byte {
		return secret(i, "kubernetes.io/tls", "ca.crt", inBase64(ca), "tls.crt",
			inBase64(pemOf(uint64(i), "CERTIFICATE", 600)))
	})
	require.Contains(t, string(k.dict.newest.Load().content), ca)
	for n := range 3 {
		o := mustPack(t, c, k, secret(1, "kubernetes.io/tls", "tls.crt", inBase64("123"[:n]+ca)))
		require.Less(t, len(o.body), 120)
	}
}

// FuzzNested packs what base64, PEM and JSON can be nested to, and compares
// bytes. What is damaged is refused or decoded without a panic.
func FuzzNested(f *testing.F) {
	f.Add([]byte("some data"), []byte("\n"), uint8(64), uint8(0), uint16(0))
	f.Add(randomBytes(1, 900), []byte("\n"), uint8(64), uint8(1), uint16(3))
	f.Add(randomBytes(2, 900), []byte("\r\n"), uint8(64), uint8(2), uint16(100))
	f.Add(randomBytes(3, 300), []byte("\n    "), uint8(76), uint8(3), uint16(1))
	f.Add(randomBytes(4, 300), []byte("="), uint8(33), uint8(4), uint16(1))
	f.Add([]byte(pemOf(1, "CERTIFICATE", 300)), []byte("\n"), uint8(0), uint8(2), uint16(77))
	f.Add([]byte(kubeconfig(1, 300)), []byte(`\n`), uint8(0), uint8(1), uint16(500))
	f.Add([]byte("\x01\x02 text \x01"), []byte("\x01"), uint8(40), uint8(5), uint16(9))
	c := NewCodec()
	k := trainedBy(f, c, secretGVK, tlsSecret)
	d := k.dict.newest.Load()
	f.Fuzz(func(t *testing.T, data, gap []byte, width, levels uint8, at uint16) {
		text := string(data)
		if width > 0 {
			text = strings.Join(chunks(inBase64(text), int(width)), string(gap))
		}
		for range levels % 6 {
			text = inBase64("-----BEGIN " + text + "\n")
		}
		var s scratch
		s.plain = []byte(`"labels""metadata":"` + text + `","data":{"a":"` + text + `","b":"` + string(data) + `"}`)
		if len(s.plain) > 4*maxBlock {
			return
		}
		s.labelsLen = len(`"labels"`)
		s.metaLen = min(int(at), len(s.plain)-s.labelsLen)
		for _, d := range []*dictionary{nil, d} {
			body := s.seal(d)
			for _, to := range []extent{toTexts, toMetadata, toEnd} {
				var back scratch
				require.NoError(t, back.unseal(body, &k.dict, to))
				end := [...]int{s.texts(), s.texts() + s.metaLen, len(s.plain)}[to]
				require.Equal(t, string(s.plain[:end]), string(back.plain))
			}
		}
		if len(s.plain) <= maxBlock {
			requireBlock(t, d, s.plain)
		}
		_, _ = appendNested(nil, data)
		var back scratch
		_ = back.unseal(string(append([]byte{codecNested, d.slot, 0, 0, 0, width}, data...)), &k.dict, toEnd)
	})
}

// chunks cuts a text into pieces of n bytes.
func chunks(text string, n int) (out []string) {
	for len(text) > n {
		out = append(out, text[:n])
		text = text[n:]
	}
	return append(out, text)
}
