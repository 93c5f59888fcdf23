// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// FuzzList compares ListReader and Scan with encoding/json, for pages that
// arrive in pieces of any size.
func FuzzList(f *testing.F) {
	for _, s := range listSeeds {
		f.Add([]byte(s), 5)
		f.Add([]byte(s), 4096)
	}
	f.Fuzz(func(t *testing.T, page []byte, n int) {
		var want map[string]any
		wantErr := json.Unmarshal(page, &want)
		items, header, err := readList(page, n, false)
		itemsAhead, headerAhead, errAhead := readList(page, n, true)
		require.Equal(t, items, itemsAhead)
		require.Equal(t, header, headerAhead)
		require.Equal(t, err, errAhead)
		if err != nil {
			if wantErr == nil && want != nil && !named(err) {
				t.Fatalf("refused without a field: %v", err)
			}
			requireTyped(t, err)
			return
		}
		require.NoError(t, wantErr)
		wantItems, _ := want["items"].([]any)
		require.Len(t, items, len(wantItems))
		for i, item := range items {
			require.Equal(t, normalize(wantItems[i]), item)
		}
		meta, _ := want["metadata"].(map[string]any)
		require.Equal(t, text(want["apiVersion"]), header.APIVersion)
		require.Equal(t, text(want["kind"]), header.Kind)
		require.Equal(t, text(meta["resourceVersion"]), header.ResourceVersion)
		require.Equal(t, text(meta["continue"]), header.Continue)
		remaining, _ := meta["remainingItemCount"].(float64)
		require.InDelta(t, remaining, float64(header.Remaining), 1024)
	})
}

// readList reads and scans a page to its end.
func readList(page []byte, n int, ahead bool) ([]string, wire.ListHeader, error) {
	l := wire.NewListReader(&pieces{page, n}, wire.Limits{})
	defer l.Close()
	var items []string
	for {
		item, err := l.Next()
		if errors.Is(err, io.EOF) {
			return items, l.Header(), nil
		}
		if err != nil {
			return nil, l.Header(), err
		}
		if ahead {
			_, err = l.Scan()
		} else {
			_, err = wire.Scan(item)
		}
		if err != nil {
			return nil, l.Header(), err
		}
		var v any
		if err := json.Unmarshal(slices.Clone(item), &v); err != nil {
			return nil, l.Header(), err
		}
		items = append(items, normalize(v))
	}
}

// listSeeds are pages as servers write them, and malformed ones.
var listSeeds = []string{
	`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":"abc",` +
		`"remainingItemCount":7},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}` + "\n",
	`{"apiVersion":"x.io/v1","items":[{"kind":"X"}, {"kind":"X"} ],"kind":"XList","metadata":{"continue":"",` +
		`"resourceVersion":"3"}}`,
	`{"items":[]}`, `{"items":null}`, `{"items":[{}],"items":[]}`, `{"items":[],"items":null}`, `{"items":{}}`,
	`{"items":3}`, `{"items":"["}`, `{}`, `[]`, `null`, ``,
	`{"kind":"Status","status":"Failure","message":"no"}`, `{"kind":"Status","items":[]}`, `<html>`, `{"items":[`,
	`{"items":[{}`, `{"items":[{}]`, `{"items":[{}]}x`,
	`{"items":[{}]} {}`, `{"items":[1,"a",null,true]}`, `{"items":[,]}`, `{"items":[{},]}`, `{"items":[{}{}]}`,
	`{"items":[{};{}]}`, `{"items":[];"kind":"x"}`, `{"items";[]}`, `{"items":[{"a":[}]}]}`, `{"items":[]]}`,
	`{"it\u0065ms":[{}]}`, `{"items":[{}],"extra":{"a":[1,2]}}`, `{"items":[],"extra":{]}`,
	`{"items":[],"metadata":{"resourceVersion":1}}`, `{"items":[],"metadata":null}`,
	`{"items":[],"metadata":{"resourceVersion":"1"},"metadata":{"continue":"c"}}`,
	`{"items":[],"metadata":{"remainingItemCount":1.5}}`, `{"items":[],"kind":tru}`, `{"items":[],"a":1 2}`,
}
