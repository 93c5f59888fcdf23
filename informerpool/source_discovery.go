// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/internal/meter"
	"github.com/fleetcache/fleetcache/internal/sanitize"
)

const (
	// maxDiscovery bounds the size of a discovery document, and
	// maxDiscoveryMemory its memory once decoded.
	maxDiscovery       = 8 << 20
	maxDiscoveryMemory = 32 << 20
	// discoveryTypes are the supported forms of discovery: all groups in one
	// document and, for older servers, one document for each version.
	discoveryTypes = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)

var (
	errNoDiscovery    = errors.New("discovery was answered by something else")
	errStaleDiscovery = errors.New("the server does not know at the moment what a version of the group serves")
)

var _ Discoverer = (*restSource)(nil)

// Discover implements [Discoverer]. Only discovery documents count, which
// nothing but an API server writes: a response without one is an error.
func (s *restSource) Discover(ctx context.Context, r Request) (Discovery, error) {
	root := "/apis"
	if r.Key.Resource.Group == "" {
		root = "/api"
	}
	var all discoveryDocument
	if err := s.document(ctx, r, root, &all); err != nil {
		return Discovery{}, err
	}
	var out Discovery
	err := s.lookUp(ctx, r, root, all, &out)
	if err != nil {
		return Discovery{}, err
	}
	return out, nil
}

// lookUp follows the document of all groups, or of all versions of the core
// group, to the resource.
func (s *restSource) lookUp(ctx context.Context, r Request, root string, all discoveryDocument, out *Discovery) error {
	switch all.Kind {
	case "APIGroupDiscoveryList":
		return out.inGroups(r.Key, all.Items)
	case "APIGroupList":
		for _, g := range all.Groups {
			if g.Name == r.Key.Resource.Group {
				return s.inVersions(ctx, r, root+"/"+url.PathEscape(g.Name), g.versions(), out)
			}
		}
		return nil // the group is not served
	case "APIVersions":
		var names []string
		if json.Unmarshal(all.Versions, &names) == nil {
			return s.inVersions(ctx, r, root, names, out)
		}
	}

	return errNoDiscovery
}

// discoveryDocument is any discovery document, reduced to the fields in use.
type discoveryDocument struct {
	Kind         string           `json:"kind"`
	GroupVersion string           `json:"groupVersion"`
	Items        []discoveryGroup `json:"items"`
	Groups       []discoveryGroup `json:"groups"`
	Versions     json.RawMessage  `json:"versions"`
	Resources    []struct {
		Name       string `json:"name"`
		Namespaced bool   `json:"namespaced"`
	} `json:"resources"`
}

type discoveryGroup struct {
	Name     string `json:"name"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Versions []struct {
		Version   string `json:"version"`
		Freshness string `json:"freshness"`
		Resources []struct {
			Resource string `json:"resource"`
			Scope    string `json:"scope"`
		} `json:"resources"`
	} `json:"versions"`
}

func (g discoveryGroup) versions() []string {
	var out []string
	for _, v := range g.Versions {
		out = append(out, v.Version)
	}
	return out
}

// inGroups looks up the key's resource in a document of all groups.
func (d *Discovery) inGroups(k Key, groups []discoveryGroup) error {
	for _, g := range groups {
		if g.Metadata.Name != k.Resource.Group {
			continue
		}
		for _, v := range g.Versions {
			has := false
			for _, res := range v.Resources {
				has = has || covers(k, res.Resource, res.Scope != "Cluster")
			}
			if !has && v.Freshness == "Stale" {
				return errStaleDiscovery
			}
			d.note(k, v.Version, has)
		}
	}

	return nil
}

// covers reports whether a discovered resource is that of the key. A definition
// that was re-created without namespaces has none of the objects that were in a
// namespace.
func covers(k Key, name string, namespaced bool) bool {
	return name == k.Resource.Resource && (namespaced || k.Namespace == "")
}

func (d *Discovery) note(k Key, version string, has bool) {
	switch {
	case has && version == k.Resource.Version:
		d.Served = true
	case has:
		d.Versions = append(d.Versions, sanitize.Text(version))
	}
}

// inVersions queries each version of a group for its resources.
func (s *restSource) inVersions(ctx context.Context, r Request, path string, versions []string, out *Discovery) error {
	for _, version := range versions {
		var doc discoveryDocument
		if err := s.document(ctx, r, path+"/"+url.PathEscape(version), &doc); err != nil {
			return err
		}
		if doc.Kind != "APIResourceList" {
			return errNoDiscovery
		}
		has := false
		for _, res := range doc.Resources {
			has = has || covers(r.Key, res.Name, res.Namespaced)
		}
		out.note(r.Key, version, has)
	}

	return nil
}

// document reads one discovery document.
func (s *restSource) document(ctx context.Context, r Request, path string, into *discoveryDocument) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	endpoint, err := s.connect(ctx, r.Key.Cluster)
	if err != nil {
		return err
	}
	if endpoint.Epoch != r.Epoch {
		return ErrEpochChanged
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(endpoint.URL, "/")+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("discover %s: bad endpoint", r.Key) // the cause would quote the URL
	}
	req.Header.Set("Accept", discoveryTypes)
	resp, err := endpoint.Client.Do(req)
	if err != nil {
		return fmt.Errorf("discover: %w", withoutURL(err))
	}
	defer func() { _ = resp.Body.Close() }()
	if err := checkResponse(resp, r.Key, "discover"); err != nil {
		if apierrors.IsNotFound(err) {
			return errNoDiscovery
		}
		return fmt.Errorf("discover: %w", err)
	}

	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDiscovery+1))
	if err != nil {
		return fmt.Errorf("discover: %w", err)
	}
	if fits, err := meter.Decode(body, into, maxDiscoveryMemory); len(body) > maxDiscovery || !fits || err != nil {
		return errNoDiscovery
	}
	return nil
}
