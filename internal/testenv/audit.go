// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	policyFile = "audit-policy.yaml"
	auditFile  = "audit.log"

	// auditPolicy records every request when it is received. A request that
	// fails to authenticate is recorded only at stage ResponseStarted.
	auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseComplete, Panic]
rules:
- level: None
  users: ["system:apiserver"]
- level: None
  users: ["system:anonymous"]
  nonResourceURLs: ["/healthz"]
- level: Metadata
`
)

// configureAudit makes the server record each request before acting on it, in a
// single file that is never rotated.
func configureAudit(args *envtest.Arguments, a *APIServer) {
	args.Set("audit-policy-file", a.path(policyFile))
	args.Set("audit-log-path", a.path(auditFile))
	args.Set("audit-log-mode", "blocking")
	args.Set("audit-log-format", "json")
	args.Set("audit-log-maxsize", "100000") // MB
}

// mendAudit removes an incomplete last line, which a killed server may have
// left, before another server appends to the file.
func (a *APIServer) mendAudit() error {
	text, err := os.ReadFile(a.path(auditFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Truncate(a.path(auditFile), int64(bytes.LastIndexByte(text, '\n')+1))
}

// Request is a request that an API server has received.
type Request struct {
	Verb        string // get, list, watch, create, and so on; for a non-resource request the HTTP verb in lower case
	Group       string
	Version     string
	Resource    string // plural; empty for a non-resource request
	Subresource string
	Namespace   string
	Name        string
	User        string // empty if it failed to authenticate
	UserAgent   string
	URI         string // path and query
	Time        time.Time
	// Rejected reports that the request failed to authenticate and was answered
	// with 401.
	Rejected bool
	// Unstreamed reports that the request asked for a streamed list but the
	// server streams none, because its version is older than 1.34 or because of
	// a feature gate. A list follows.
	Unstreamed bool
}

// Match selects requests.
type Match func(Request) bool

// Verb matches requests with one of the verbs.
func Verb(verbs ...string) Match {
	return func(r Request) bool { return slices.Contains(verbs, r.Verb) }
}

// Resource matches requests for a resource, given as its plural name alone or
// as name.group. It does not match subresources.
func Resource(resource string) Match {
	want := schema.ParseGroupResource(resource)
	return func(r Request) bool {
		return r.Resource == want.Resource && r.Subresource == "" && (want.Group == "" || want.Group == r.Group)
	}
}

// UserAgent matches requests whose user agent contains part.
func UserAgent(part string) Match {
	return func(r Request) bool { return strings.Contains(r.UserAgent, part) }
}

// ByUser matches requests authenticated as the user.
func ByUser(name string) Match {
	return func(r Request) bool { return r.User == name }
}

// Rejected matches requests that failed to authenticate.
func Rejected() Match {
	return func(r Request) bool { return r.Rejected }
}

// Requests returns the requests that the server has received since the cluster
// was started and that match all of the matches, in the order in which the
// server received them. A request is included once its response has begun to
// arrive. Requests of the server itself and of this package are excluded.
// Restarts make no difference: a later call with the same matches returns
// everything that an earlier one did, and possibly more.
func (a *APIServer) Requests(matches ...Match) ([]Request, error) {
	text, err := os.ReadFile(a.path(auditFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []Request
	received := map[string]int{} // index in found, by the audit ID
	// The last line may be incomplete.
	for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: parse audit event: %w", a.path(auditFile), err)
		}
		if i, ok := received[e.AuditID]; ok && e.ResponseStatus.Code == http.StatusUnprocessableEntity {
			found[i].Unstreamed = true
		}
		if r, ok := e.request(); ok {
			received[e.AuditID] = len(found)
			found = append(found, r)
		}
	}

	return slices.DeleteFunc(found, func(r Request) bool {
		return slices.ContainsFunc(matches, func(m Match) bool { return !m(r) })
	}), nil
}

// event is the part of an audit event that we read.
type event struct {
	AuditID        string    `json:"auditID"`
	Stage          string    `json:"stage"`
	RequestURI     string    `json:"requestURI"`
	Verb           string    `json:"verb"`
	UserAgent      string    `json:"userAgent"`
	StageTimestamp time.Time `json:"stageTimestamp"`

	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		APIVersion  string `json:"apiVersion"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// request returns the request that an event of the audit log describes, or
// false if the event does not describe a request of its own.
func (e event) request() (Request, bool) {
	rejected := e.Stage == "ResponseStarted" && e.ResponseStatus.Code == http.StatusUnauthorized &&
		e.User.Username == ""
	if (e.Stage != "RequestReceived" && !rejected) || e.UserAgent == userAgent {
		return Request{}, false
	}
	return Request{
		Verb:        e.Verb,
		Group:       e.ObjectRef.APIGroup,
		Version:     e.ObjectRef.APIVersion,
		Resource:    e.ObjectRef.Resource,
		Subresource: e.ObjectRef.Subresource,
		Namespace:   e.ObjectRef.Namespace,
		Name:        e.ObjectRef.Name,
		User:        e.User.Username,
		UserAgent:   e.UserAgent,
		URI:         e.RequestURI,
		Time:        e.StageTimestamp,
		Rejected:    rejected,
	}, true
}
