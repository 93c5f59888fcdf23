// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestPrintingNamesTheObjectAndShowsNoContent: a body of few bytes is kept as it
// is, and fmt reads unexported fields.
func TestPrintingNamesTheObjectAndShowsNoContent(t *testing.T) {
	c := NewCodec()
	o := mustPack(t, c, c.Kind(corev1.SchemeGroupVersion.WithKind("Secret")), []byte(
		`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"default","name":"token","uid":`+
			`"5d1c9a7e-6f0b-4f0e-9c53-0a2f5f6a1b11","resourceVersion":"7"},"stringData":{"password":"hunter2"}}`))
	type event struct{ Old, New *Object }

	const name = "Secret default/token"
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%t", "%20v"} {
		require.Equal(t, name, fmt.Sprintf(format, o), format)
		require.Contains(t, fmt.Sprintf(format, event{New: o}), name, format)
	}
	require.Equal(t, `"Secret default/token"`, fmt.Sprintf("%q", o))
	require.Equal(t, "<nil>", fmt.Sprint((*Object)(nil)))

	var text bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&text, nil), slog.NewJSONHandler(&text, nil)} {
		slog.New(h).Info("seen", "object", o)
		logr.FromSlogHandler(h).Info("seen", "object", o)
	}
	funcr.NewJSON(func(line string) { text.WriteString(line) }, funcr.Options{}).Info("seen", "object", o)
	require.Equal(t, 5, bytes.Count(text.Bytes(), []byte(name)), text.String())
	require.NotContains(t, text.String(), "hunter2")
}

// TestCopyOfAnObjectHasItsName: nothing keeps users from copying what a pointer
// leads to, and the name is behind the original.
func TestCopyOfAnObjectHasItsName(t *testing.T) {
	c := NewCodec()
	k := c.Kind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	for _, n := range []int{1, 5, 6, 20, 60, 253, 300} {
		name := strings.Repeat("n", n)
		o := *mustPack(t, c, k, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default",`+
			`"name":"`+name+`","uid":"5d1c9a7e-6f0b-4f0e-9c53-0a2f5f6a1b11","resourceVersion":"7"}}`))
		runtime.GC()
		require.Equal(t, name, o.GetName())
		require.Equal(t, name, NameOf(&o))
	}
}
