// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// searchServer is a proxy that shows the objects of several clusters as those
// of one, as search APIs do. The versions of its lists and bookmarks are
// opaque: they encode one of each cluster. Those of its objects are the
// clusters' own, so that they can be compared in one object alone.
type searchServer struct {
	*pooltest.Server

	bytes   int  // how long a version is
	objects bool // the versions of objects are as long
}

var (
	ownVersion    = regexp.MustCompile(`"metadata":{"resourceVersion":"(\d+)"`)
	memberVersion = regexp.MustCompile(`"name":"far[^}]*"resourceVersion":"`)
	inObject      = regexp.MustCompile(`("namespace":"ns","resourceVersion":)"(\d+)"`)
)

// token returns a version as long as the server's are.
func (s *searchServer) token(version string) string {
	return strings.Repeat("t", s.bytes-len(version)-1) + "." + version
}

func (s *searchServer) rewrite(in []byte) []byte {
	in = ownVersion.ReplaceAllFunc(in, func(b []byte) []byte {
		return fmt.Appendf(nil, `"metadata":{"resourceVersion":%q`, s.token(string(ownVersion.FindSubmatch(b)[1])))
	})
	if s.objects {
		return inObject.ReplaceAllFunc(in, func(b []byte) []byte {
			m := inObject.FindSubmatch(b)
			return fmt.Appendf(nil, `%s%q`, m[1], s.token(string(m[2])))
		})
	}
	return memberVersion.ReplaceAll(in, []byte("${0}9")) // a later one
}

// List implements informerpool.Source.
func (s *searchServer) List(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	body, err := s.Server.List(ctx, r)
	if err != nil {
		return nil, err
	}
	doc, err := io.ReadAll(body)
	return io.NopCloser(bytes.NewReader(s.rewrite(doc))), err
}

// Watch implements informerpool.Source.
func (s *searchServer) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if from := r.Options.ResourceVersion; from != "" {
		_, number, ok := strings.Cut(from, ".")
		if _, err := strconv.Atoi(number); !ok || err != nil {
			return nil, apierrors.NewBadRequest("not a version of this server's")
		}
		r.Options.ResourceVersion = number
	}
	body, err := s.Server.Watch(ctx, r)
	if err != nil {
		return nil, err
	}
	return &oddBody{ReadCloser: body, change: s.rewrite}, nil
}

// TestHazardVersionsAreOpaqueAndLong: a version is a string of the server's,
// which the informer returns and does not read. It is not mixed up with those
// of objects, and the objects of several clusters have no common order.
func TestHazardVersionsAreOpaqueAndLong(t *testing.T) {
	for _, length := range []int{20, 128, 129, 1000, 4 << 10} {
		for _, objects := range []bool{false, true} {
			for _, streamed := range []bool{false, true} {
				name := fmt.Sprintf("%d bytes, of objects %t, streamed %t", length, objects, streamed)
				t.Run(name, func(t *testing.T) {
					testOpaque(t, &searchServer{bytes: length, objects: objects}, streamed)
				})
			}
		}
	}
}

func testOpaque(t *testing.T, source *searchServer, streamed bool) {
	t.Helper()
	search := func(s *pooltest.Server) informerpool.Source { source.Server = s; return source }
	withOddity(t, search, func(t *testing.T, o *oddity) {
		o.events.Epochs = true // versions that are not numbers are not later
		o.Set(func(s *pooltest.Server) { s.NoStream = !streamed })
		shown := func() map[string]int {
			objects, _, err := o.lease.List(informerpool.Query{})
			require.NoError(t, err)
			out := map[string]int{}
			for _, object := range objects {
				var w pooltest.Widget
				require.NoError(t, object.Into(&w))
				out[w.Name] = w.Spec.Value
			}
			return out
		}
		is := func() map[string]int {
			out := map[string]int{}
			for name, object := range o.Objects {
				out[name.Name] = object.Value
			}
			return out
		}
		change := func(i int) {
			for _, name := range []string{"far-a", "a", "far-b", "b"} {
				o.Put("ns", name, i)
			}
			o.Delete("ns", "far-c")
			o.Put("ns", "far-c", i)
		}
		change(0)
		synctest.Wait()
		before := o.lease.Status().Lists
		for i := range 30 {
			change(i + 1)
			o.SendBookmark()
			pooltest.After(time.Minute)
			require.Equal(t, is(), shown())
			require.NoError(t, o.lease.Trust(0))
		}
		require.Equal(t, before, o.lease.Status().Lists, "one watch")
		for i := range 10 {
			o.Cut(io.ErrUnexpectedEOF)
			change(i + 100)
			o.Delete("ns", "far-c")
			pooltest.After(time.Minute)
			require.Equal(t, is(), shown())
			require.NoError(t, o.lease.Trust(0))
		}
		require.LessOrEqual(t, o.lease.Status().Lists-before, int64(10))
		require.Zero(t, o.rollbacks)
		require.LessOrEqual(t, len(o.log.Lines), 10, "%v", o.log.Lines)
	})
}
