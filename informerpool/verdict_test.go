// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestVerdictStandsWhateverFails runs every ordered pair, and every triple, of
// failures against the table in the comment of verdict.
func TestVerdictStandsWhateverFails(t *testing.T) {
	none := schema.GroupResource{}
	type failure struct {
		err  error
		kind string // refused, 401, or other
	}
	failures := []failure{
		{apierrors.NewForbidden(none, "", errors.New("no")), "refused"},
		{apierrors.NewNotFound(none, ""), "refused"},
		{apierrors.NewMethodNotSupported(none, "list"), "refused"},
		{apierrors.NewBadRequest("no"), "refused"},
		{&meta.NoKindMatchError{}, "refused"},
		{ErrBudget, "refused"},
		{fmt.Errorf("list: %w", ErrKind), "refused"},
		{ErrRefused, "refused"},
		{apierrors.NewUnauthorized("who"), "401"},
		{apierrors.NewServiceUnavailable("no"), "other"},
		{apierrors.NewTooManyRequestsError("no"), "other"},
		{apierrors.NewInternalError(errors.New("no")), "other"},
		{apierrors.NewResourceExpired("no"), "other"},
		{apierrors.NewTimeoutError("no", 1), "other"},
		{io.ErrUnexpectedEOF, "other"},
		{ErrStalled, "other"},
		{ErrDetached, "other"},
		{ErrEpochChanged, "other"},
	}
	expected := func(in ...failure) (stands error) {
		rejections := 0
		var rejected error
		for _, f := range in {
			switch f.kind {
			case "refused":
				stands = f.err
			case "401":
				rejections, rejected = rejections+1, f.err
			}
		}
		if stands == nil && rejections > 1 {
			return rejected
		}
		return stands
	}

	for _, a := range failures {
		for _, b := range failures {
			for _, c := range failures {
				v := verdict{}.after(a.err)
				require.Equal(t, expected(a), v.stands(), "%v", a.err)
				v = v.after(b.err)
				require.Equal(t, expected(a, b), v.stands(), "%v, %v", a.err, b.err)
				v = v.after(c.err)
				require.Equal(t, expected(a, b, c), v.stands(), "%v, %v, %v", a.err, b.err, c.err)
			}
		}
	}

	tr := trust{}
	for range 2 {
		tr.suspect(failures[0].err)
		tr.suspect(io.ErrUnexpectedEOF)
		require.ErrorContains(t, tr.fault(), io.ErrUnexpectedEOF.Error())
		require.NotErrorIs(t, tr.fault(), io.ErrUnexpectedEOF)
		require.True(t, apierrors.IsForbidden(tr.fault()), "%v", tr.fault())
		tr.attach()
		require.NoError(t, tr.verdict.stands())
		require.NoError(t, tr.fault())
	}
}
