// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"mime"
	"strings"

	"bytes"

	"github.com/fleetcache/fleetcache/internal/meter"
)

// accept requests aggregated discovery from servers since 1.30 and since 1.27,
// and the older form from all others.
const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," +
	"application/json"

// aggregated is the part of an APIGroupDiscoveryList that is kept. Decoding
// skips subresources, most verbs and short names.
type aggregated struct {
	Kind  string `json:"kind"`
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Versions []struct {
			Version   string `json:"version"`
			Freshness string `json:"freshness"`
			Resources []struct {
				Resource     string `json:"resource"`
				Singular     string `json:"singularResource"`
				Scope        string `json:"scope"`
				ResponseKind struct {
					Kind string `json:"kind"`
				} `json:"responseKind"`
				Verbs []string `json:"verbs"`
			} `json:"resources"`
		} `json:"versions"`
	} `json:"items"`
}

// isAggregated reports whether a Content-Type is that of an
// APIGroupDiscoveryList.
func isAggregated(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/json" &&
		params["g"] == "apidiscovery.k8s.io" && params["as"] == "APIGroupDiscoveryList"
}

// parseAggregated parses an APIGroupDiscoveryList, v2 or v2beta1. It omits
// names that cannot be real.
func parseAggregated(body []byte) (*document, error) {
	var list aggregated
	if err := decode(body, &list); err != nil {
		return nil, err
	}
	if list.Kind != "APIGroupDiscoveryList" {
		return nil, ErrMalformed
	}
	var b builder
	for _, item := range list.Items {
		for _, v := range item.Versions {
			into, err := b.version(item.Metadata.Name, v.Version, v.Freshness == "Stale")
			if err != nil {
				return nil, err
			}
			for _, r := range v.Resources {
				err := b.add(into, resource{
					name:       r.Resource,
					singular:   r.Singular,
					kind:       r.ResponseKind.Kind,
					namespaced: r.Scope == "Namespaced",
					lacks:      lacking(r.Verbs),
				})
				if err != nil {
					return nil, err
				}
			}
		}
	}

	return &document{groups: b.groups}, nil
}

// decode decodes a document, unless it takes too much memory. Its errors are
// our own, because the decoder's words may quote the body.
func decode(body []byte, into any) error {
	fits, err := meter.Decode(body, into, maxMemory)
	switch {
	case !fits:
		return fmt.Errorf("%w: more than %d bytes in memory", ErrTooLarge, maxMemory)
	case err != nil:
		return ErrMalformed
	}

	return nil
}

// builder builds a document within the limits.
type builder struct {
	groups    []group
	index     map[string]int // of groups, by name
	versions  int
	resources int
}

// version starts a group version. It returns nil if the version must be ignored
// because it has a bad name or already exists.
func (b *builder) version(groupName, name string, stale bool) (*version, error) {
	if !validGroup(groupName) || !validLabel(name) {
		return nil, nil
	}
	i, ok := b.index[groupName]
	if !ok {
		if b.index == nil {
			b.index = map[string]int{}
		}
		i = len(b.groups)
		b.index[groupName] = i
		b.groups = append(b.groups, group{name: groupName})
	}

	g := &b.groups[i]
	if g.version(name) != nil {
		return nil, nil
	}
	if b.versions++; b.versions > maxVersions {
		return nil, fmt.Errorf("%w: more than %d versions", ErrTooLarge, maxVersions)
	}
	g.versions = append(g.versions, version{name: name, stale: stale})

	return &g.versions[len(g.versions)-1], nil
}

// add adds r to v, which must be the version started last. The first resource
// with a name wins.
func (b *builder) add(v *version, r resource) error {
	if v == nil || !validSubdomain(r.name) || !validKind(r.kind) {
		return nil
	}
	if b.resources++; b.resources > maxResources {
		return fmt.Errorf("%w: more than %d resources", ErrTooLarge, maxResources)
	}
	if !validSubdomain(r.singular) {
		r.singular = strings.ToLower(r.kind)
	}
	v.resources = append(v.resources, r)
	return nil
}

func validGroup(name string) bool { return name == "" || validSubdomain(name) }

// validSubdomain reports whether name may be a segment of a path: letters,
// digits, dashes and inner dots.
func validSubdomain(name string) bool {
	return name != "" && len(name) <= maxName && name[0] != '.' && !strings.Contains(name, "..") &&
		!strings.ContainsFunc(name, func(r rune) bool { return !isLower(r) && r != '-' && r != '.' })
}

func validLabel(name string) bool { return validSubdomain(name) && !strings.Contains(name, ".") }

func validKind(name string) bool {
	return name != "" && len(name) <= maxName &&
		!strings.ContainsFunc(name, func(r rune) bool { return !isLower(r) && r != '-' && (r < 'A' || r > 'Z') })
}

func isLower(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }

// typeMetas are the two beginnings that servers write for documents whose ETag
// we can verify.
var typeMetas = [][]byte{
	[]byte(`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2",`),
	[]byte(`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2beta1",`),
}

// verifies reports whether etag is the hash of body as kube-apiserver computes
// it: SHA-512 of the document without its type. Only such an ETag has the same
// meaning in every cluster; any other is only a claim of the server that sent
// it.
func verifies(etag string, body []byte) bool {
	want, err := hex.DecodeString(strings.Trim(etag, `"`))
	if err != nil || len(want) != sha512.Size {
		return false
	}
	body = bytes.TrimSuffix(body, []byte("\n"))
	for _, start := range typeMetas {
		if rest, ok := bytes.CutPrefix(body, start); ok {
			h := sha512.New()
			h.Write([]byte("{"))
			h.Write(rest)
			return bytes.Equal(h.Sum(nil), want)
		}
	}

	return false
}
