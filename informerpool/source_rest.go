// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion/queryparams"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/informerpool/internal/discovery"
	"github.com/fleetcache/fleetcache/internal/sanitize"
)

const (
	// maxErrorBody bounds how much is read of a response that is not a list or
	// watch.
	maxErrorBody = 1 << 20
	// maxRetryAfter bounds how long a server can make an informer stay away.
	maxRetryAfter = sanitize.MaxRetryAfter * time.Second
)

// metadataType requests the metadata of a list alone, and metadataFrames that
// of a watch, from servers that support it.
const (
	metadataType   = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	metadataFrames = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

// Endpoint is the address of a cluster and the client that reaches it.
type Endpoint struct {
	// Client sends the requests. Its Timeout must be zero, since it would cut
	// watches, and it must not follow redirects.
	Client *http.Client
	// URL is the API server's base URL; it may have a path prefix.
	URL string
	// Epoch is the history the endpoint serves.
	Epoch Epoch
}

// FromREST returns a source that reads raw frames over HTTP. connect returns
// the endpoint of a cluster. It blocks while the cluster cannot be contacted,
// and must otherwise return at once, since it is called for every request.
// FromREST panics if it is nil.
func FromREST(connect func(ctx context.Context, cluster types.NamespacedName) (Endpoint, error)) Source {
	if connect == nil {
		panic("informerpool: FromREST: connect is required")
	}
	return &restSource{connect: connect}
}

// FromConfig returns a source for the single cluster that config reaches; the
// Cluster of a key is ignored. The config's Timeout is ignored, and redirects
// are refused: following one would send the credentials to any host that the
// server names. FromConfig uses client-go's transport, which supports
// everything a rest.Config can request; there, each watch costs a goroutine and
// some KB, which clustercache's own transport saves.
func FromConfig(config *rest.Config) (Source, error) {
	if config == nil {
		return nil, &OptionError{Field: "config", Err: errRequired}
	}
	c := rest.CopyConfig(config)
	c.Timeout = 0
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, &OptionError{Field: "config", Err: err}
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return nil, &OptionError{Field: "config.Host", Err: err}
	}
	endpoint := Endpoint{Client: client, URL: base.String()}

	return FromREST(func(context.Context, types.NamespacedName) (Endpoint, error) { return endpoint, nil }), nil
}

type restSource struct {
	connect func(ctx context.Context, cluster types.NamespacedName) (Endpoint, error)
}

var (
	_ Source     = (*restSource)(nil)
	_ KindSource = (*restSource)(nil)
	_ Discoverer = (*restSource)(nil)
)

// Ready implements Source.
func (s *restSource) Ready(ctx context.Context, cluster types.NamespacedName) (Epoch, error) {
	e, err := s.connect(ctx, cluster)
	return e.Epoch, err
}

// List implements Source.
func (s *restSource) List(ctx context.Context, r Request) (io.ReadCloser, error) {
	return s.get(ctx, r, "list")
}

// Watch implements Source.
func (s *restSource) Watch(ctx context.Context, r Request) (io.ReadCloser, error) {
	r.Options.Watch = true
	return s.get(ctx, r, "watch")
}

// KindOf implements KindSource by the discovery document of the resource's
// group and version. If a server does not serve that document, for example for
// lack of permission, the informer requests a list instead.
func (s *restSource) KindOf(ctx context.Context, r Request) (string, error) {
	doc, err := s.document(ctx, r, groupVersionPath(r.Key.Resource.GroupVersion()))
	_, answered := errors.AsType[answerError](err)
	switch {
	case answered, errors.Is(err, discovery.ErrNone):
		return "", nil
	case err != nil:
		return "", err
	}
	return doc.KindOf(r.Key.Resource.Resource), nil
}

// Discover implements [Discoverer]. Only discovery documents count, which
// nothing but an API server writes: a response without one is an error.
func (s *restSource) Discover(ctx context.Context, r Request) (Discovery, error) {
	search := discovery.Search{Resource: r.Key.Resource, Namespaced: r.Key.Namespace != ""}
	found, err := search.Find(func(path string) (*discovery.Document, error) { return s.document(ctx, r, path) })

	return Discovery(found), err
}

// document reads one discovery document.
func (s *restSource) document(ctx context.Context, r Request, path string) (*discovery.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	resp, err := s.send(ctx, r, "discover", path, discovery.Types)
	_, answered := errors.AsType[answerError](err)
	switch {
	case answered && apierrors.IsNotFound(err):
		return nil, discovery.ErrNone
	case err != nil:
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, discovery.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("discover %s: %w", r.Key, err)
	}
	return discovery.Decode(body)
}

func (s *restSource) get(ctx context.Context, r Request, verb string) (io.ReadCloser, error) {
	accept := "application/json"
	switch {
	case r.MetadataOnly && r.Options.Watch:
		accept = metadataFrames
	case r.MetadataOnly:
		accept = metadataType
	}
	resp, err := s.send(ctx, r, verb, requestPath(r), accept)
	if err != nil {
		return nil, err
	}
	resp.Header, resp.Request = nil, nil // the transport keeps the response for as long as a watch is open

	return resp.Body, nil
}

// answerError is what a server answered instead of a JSON success.
type answerError struct{ error }

// Unwrap returns the error that the response reports.
func (e answerError) Unwrap() error { return e.error }

// send requests a path of the server, in the history that the request is made
// for. The response is a JSON success.
func (s *restSource) send(ctx context.Context, r Request, verb, path, accept string) (*http.Response, error) {
	endpoint, err := s.connect(ctx, r.Key.Cluster)
	switch {
	case err != nil:
		return nil, err
	case endpoint.Epoch != r.Epoch:
		return nil, ErrEpochChanged
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(endpoint.URL, "/")+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%s %s: bad endpoint", verb, r.Key) // the cause would quote the URL
	}
	req.Header.Set("Accept", accept)
	if r.Options.Watch {
		// A compressed watch would hold a decompressor of 38 KB for as long as
		// it is open.
		req.Header.Set("Accept-Encoding", "identity")
	}
	resp, err := endpoint.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", verb, r.Key, withoutURL(err))
	}
	if err := checkResponse(resp, r.Key, verb); err != nil {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %w", verb, r.Key, answerError{err})
	}
	return resp, nil
}

// withoutURL unwraps the error to which http.Client adds its method and URL:
// the key names the resource already, and the URL may contain more than should
// be shown.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// requestPath returns the path of a list or watch, with its query.
func requestPath(r Request) string {
	path := groupVersionPath(r.Key.Resource.GroupVersion())
	if r.Key.Namespace != "" {
		path += "/namespaces/" + url.PathEscape(r.Key.Namespace)
	}
	path += "/" + url.PathEscape(r.Key.Resource.Resource)
	query, _ := queryparams.Convert(&r.Options) // a pointer to a struct never fails
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// groupVersionPath returns the path of the resources of a group and version,
// which is also that of the document that lists them.
func groupVersionPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + url.PathEscape(gv.Version)
	}
	return "/apis/" + url.PathEscape(gv.Group) + "/" + url.PathEscape(gv.Version)
}

// checkResponse turns everything but a JSON success into an error.
func checkResponse(resp *http.Response, key Key, verb string) error {
	if resp.StatusCode == http.StatusOK {
		media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if media == "application/json" {
			return nil
		}
		return fmt.Errorf("server answered %q instead of application/json: not a Kubernetes API", sanitize.Text(media))
	}

	seconds, _ := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 64)
	seconds = min(max(seconds, 0), int64(maxRetryAfter/time.Second))
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err == nil {
		var status metav1.Status
		if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
			return sanitize.Status(status, resp.StatusCode, int32(seconds))
		}
	}

	gr := key.Resource.GroupResource()

	return apierrors.NewGenericServerResponse(resp.StatusCode, verb, gr, "", "", int(seconds), true)
}
