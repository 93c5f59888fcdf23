// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// step is a part of the measurements whose results are kept: a run that was
// interrupted continues with the first step that has none.
type step struct {
	name string
	run  func(context.Context, *report) error
}

// result is what is kept of a step.
type result struct {
	Step string    `json:"step"`
	Date time.Time `json:"date"`
	// Plan is how the step was measured; results of another plan are not used.
	Plan string `json:"plan"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	Rows    []row   `json:"rows"`
}

// journal keeps the results in a directory, or nowhere if that is empty.
type journal struct {
	dir  string
	plan string
}

func (j journal) path(s step) string {
	return filepath.Join(j.dir, "steps", strings.ReplaceAll(s.name, "/", "-")+".json")
}

// load returns the result of a step, or nil without one.
func (j journal) load(s step) (*result, error) {
	if j.dir == "" {
		return nil, nil
	}
	text, err := os.ReadFile(j.path(s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r result
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", j.path(s), err)
	}
	if r.Plan != j.plan {
		return nil, nil
	}
	return &r, nil
}

// save writes a result, as a whole or not at all.
func (j journal) save(s step, r *result) error {
	if j.dir == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(j.path(s)), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	next := j.path(s) + ".next"
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return err
	}
	return os.Rename(next, j.path(s))
}

// runSteps runs the steps that have no result yet, and those that were asked
// for by name. A step that fails does not keep the others from being measured.
// It returns the results of all steps, in their order.
func runSteps(ctx context.Context, steps []step, j journal, wanted []string, r *report) ([]result, error) {
	if err := checkNames(steps, wanted); err != nil {
		return nil, err
	}
	var results []result
	var errs []error
	for _, s := range steps {
		kept, err := j.load(s)
		if err != nil {
			return nil, err
		}
		switch {
		case ctx.Err() != nil:
			return results, errors.Join(append(errs, ctx.Err())...)
		case len(wanted) > 0 && !slices.Contains(wanted, s.name) && kept == nil:
			continue
		case kept != nil && !slices.Contains(wanted, s.name):
			for _, x := range kept.Rows {
				r.put(x)
			}
			results = append(results, *kept)
			continue
		}
		one, err := runStep(ctx, s, j, r)
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s failed: %v\n", s.name, err)
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		results = append(results, *one)
	}

	return results, errors.Join(errs...)
}

func runStep(ctx context.Context, s step, j journal, r *report) (*result, error) {
	began := time.Now()
	fmt.Fprintf(os.Stderr, "bench: %s\n", s.name)
	mine := &report{}
	if err := s.run(ctx, mine); err != nil {
		return nil, err
	}
	for _, x := range mine.rows {
		r.put(x)
	}
	out := &result{
		Step:    s.name,
		Date:    began.UTC().Truncate(time.Second),
		Plan:    j.plan,
		Seconds: time.Since(began).Round(time.Second).Seconds(),
		Rows:    mine.rows,
	}
	fmt.Fprintf(os.Stderr, "bench: %s took %s\n", s.name, time.Since(began).Round(time.Second))

	return out, j.save(s, out)
}

func checkNames(steps []step, wanted []string) error {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("no rows %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}
