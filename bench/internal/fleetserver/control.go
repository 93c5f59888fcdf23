// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleetserver

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/fleetcache/fleetcache/bench/measure"
)

// Control returns a handler that lets another process control the fleet with
// measure.Control.
func (f *Fleet) Control() http.Handler {
	m := http.NewServeMux()
	handle := func(path string, do func(*http.Request) (any, error)) {
		m.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			result, err := do(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(result)
		})
	}
	act := func(path string, do func() error) {
		handle(path, func(*http.Request) (any, error) { return struct{}{}, do() })
	}
	handle(measure.PathClusters, func(*http.Request) (any, error) { return f.Clusters(), nil })
	handle(measure.PathCounts, func(*http.Request) (any, error) { return f.Counts(), nil })
	handle(measure.PathMarks, func(*http.Request) (any, error) { return f.Marks(), nil })
	handle(measure.PathChange, func(*http.Request) (any, error) { return f.Change(), nil })
	act(measure.PathDown, f.Down)
	act(measure.PathUp, f.Up)
	act(measure.PathRestart, f.Restart)
	act(measure.PathForget, f.Forget)
	handle(measure.PathChurn, func(r *http.Request) (any, error) {
		rate, err := strconv.ParseFloat(r.URL.Query().Get("rate"), 64)
		if err == nil {
			f.Churn(rate)
		}
		return struct{}{}, err
	})

	return m
}
