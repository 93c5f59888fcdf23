// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// filled is a source that cannot stream lists, and whose pages are long.
type filled struct {
	page   func(limit int64) io.Reader
	limits []int64
	read   int64
}

func (s *filled) Ready(context.Context, types.NamespacedName) (informerpool.Epoch, error) {
	return "", nil
}

func (s *filled) Watch(ctx context.Context, r informerpool.Request) (io.ReadCloser, error) {
	if r.Options.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	return &pooltest.Stream{Ctx: ctx}, nil
}

func (s *filled) List(_ context.Context, r informerpool.Request) (io.ReadCloser, error) {
	s.limits = append(s.limits, r.Options.Limit)
	return io.NopCloser(&counted{r: s.page(r.Options.Limit), n: &s.read}), nil
}

type counted struct {
	r io.Reader
	n *int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	*c.n += int64(n)
	return n, err
}

// repeated is n times the same byte.
func repeated(c byte, n int64) io.Reader { return io.LimitReader(forever(c), n) }

type forever byte

func (e forever) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

const listHead = `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"500"},"items":[`

// TestHazardPageOfWhiteSpace: data that a server compresses to nothing costs
// nothing.
func TestHazardPageOfWhiteSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &filled{page: func(int64) io.Reader {
			return io.MultiReader(strings.NewReader(listHead), repeated(' ', 2<<30), strings.NewReader("]}"))
		}}
		p, err := informerpool.New(informerpool.Options{Source: s})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		l := pooltest.Acquire(t, p, pooltest.Everything)
		require.ErrorIs(t, l.WaitForSync(t.Context()), informerpool.ErrBudget)
		require.ErrorIs(t, l.Status().LastError, informerpool.ErrBudget)
		require.Less(t, s.read, int64(len(s.limits))*2<<20)
	})
}

// TestPagesThatAreTooLargeAreAskedForInSmallerOnes: pages are halved until they
// fit.
func TestPagesThatAreTooLargeAreAskedForInSmallerOnes(t *testing.T) {
	const object = 9 << 20
	synctest.Test(t, func(t *testing.T) {
		s := &filled{page: func(limit int64) io.Reader {
			parts := []io.Reader{strings.NewReader(listHead)}
			for i := range min(limit, 40) {
				if i > 0 {
					parts = append(parts, strings.NewReader(","))
				}
				item := strings.TrimSuffix(pooltest.WidgetJSON(fmt.Sprint("o", i), int(i+1)), "}")
				parts = append(parts, strings.NewReader(item+`,"data":"`), repeated('x', object),
					strings.NewReader(`"}`))
			}
			return io.MultiReader(append(parts, strings.NewReader("]}"))...)
		}}
		p, err := informerpool.New(informerpool.Options{Source: s, PageSize: 64})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		l := pooltest.Acquire(t, p, pooltest.Everything)
		for l.Status().State != informerpool.StateSynced {
			pooltest.After(time.Second)
		}
		require.Equal(t, []int64{64, 32, 16}, s.limits)
		require.Equal(t, 16, l.Status().Objects)
	})
}
