// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/fleetcache/fleetcache/internal/transport"
)

// maxChecks is how many failing checks an error names.
const maxChecks = 5

// checkText matches the name of a check that may be shown: words, and the
// number of a plugin. Names come from an untrusted server.
var checkText = regexp.MustCompile(`^[a-z]+[0-9]?([/._-][a-z]*[0-9]{0,2})*$`)

// unhealthyError is the answer of an API server that checks of its own health
// fail. Such a server is alive: watches and caches work without its storage,
// and while it drains before its end.
//
// A gateway without a server behind it answers 5xx, too, and some do so with an
// API status. The list of checks, which nothing but the API server knows, is
// what tells them apart.
type unhealthyError struct {
	answer   error // without the name of the request
	checks   []string
	starting bool // it does not serve everything yet
}

// Error implements error.
func (e *unhealthyError) Error() string {
	return e.answer.Error() + ", failing checks: " + strings.Join(e.checks, ", ")
}

// Unwrap returns the answer.
func (e *unhealthyError) Unwrap() error { return e.answer }

// unhealthy returns the unhealthyError in an error, or nil.
func unhealthy(err error) *unhealthyError {
	e, _ := errors.AsType[*unhealthyError](err)
	return e
}

// diagnose adds the checks that fail to the error of a health query, if the
// answer lists them.
func diagnose(proof transport.Proof, err error) error {
	failure, ok := errors.AsType[*transport.Error](err)
	if !ok || failure.Class != transport.Server {
		return err
	}
	names := failingChecks(string(proof.Body))
	if len(names) == 0 {
		return err
	}
	told, sick := *failure, &unhealthyError{answer: failure.Err}
	for i, name := range names {
		// Until these have passed, rights and kinds may be missing.
		sick.starting = sick.starting || name == "informer-sync" || strings.HasPrefix(name, "poststarthook")
		switch {
		case i == maxChecks:
			sick.checks = append(sick.checks, "…")
		case i > maxChecks:
		case len(name) > 64 || !checkText.MatchString(name):
			sick.checks = append(sick.checks, "one of an unusual name")
		default:
			sick.checks = append(sick.checks, name)
		}
	}
	told.Err = sick
	return &told
}

// failingChecks returns the names of the checks that fail, if a text is what an
// API server answers about its health, and none otherwise:
//
//	[+]ping ok
//	[-]etcd failed: reason withheld
//	readyz check failed
func failingChecks(text string) (names []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, fails := strings.CutPrefix(line, "[-]")
		switch {
		case fails:
			name, _, fails = strings.Cut(name, " failed")
			if !fails || name == "" {
				return nil
			}
			names = append(names, name)
		case line == "", strings.HasPrefix(line, "[+]"), strings.HasPrefix(line, "warn: "),
			strings.HasSuffix(line, " check failed"):
		default:
			return nil
		}
	}
	return names
}

// fallbackPath is queried where the probe path is forbidden or missing. Every
// Kubernetes API has it, and the default rules let every client read it.
const fallbackPath = "/version"

// alive queries path, or else the fallback, and returns the path that was
// answered. A server that authenticates the client and forbids both paths is
// alive, and so is a server that is too busy to answer. One that answers that
// its checks fail is so as well, and results in an unhealthyError.
func (q *queries) alive(ctx context.Context, ask getter, path string) (answered string, err error) {
	err = q.once(ctx, ask, path)
	class := transport.Classify(err)
	if path != fallbackPath && (class == transport.Forbidden || class == transport.NotFound) {
		path = fallbackPath
		err = q.once(ctx, ask, path)
	}
	note(&q.signs.busy.probe, err)
	if class := transport.Classify(err); class == transport.Forbidden || class == transport.Throttled {
		return path, nil
	}
	return path, err
}

func (q *queries) once(ctx context.Context, ask getter, path string) error {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	proof, err := ask(ctx, path)
	return diagnose(proof, err)
}
