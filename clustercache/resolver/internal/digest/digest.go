// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package digest identifies the meaning of a configuration without its content.
package digest

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"hash"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Parts holds one digest for each part of an access that can change
// independently.
type Parts [PartCount][sha256.Size]byte

const (
	partToken = iota
	partClientCert
	partTrust
	partEndpoint
	partProxy
	partOther
	// PartCount is the number of parts.
	PartCount
)

// Revision returns one digest of all parts.
func (p Parts) Revision() string {
	h := sha256.New()
	for _, part := range p {
		_, _ = h.Write(part[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Of normalizes: configurations with the same meaning have the same digest,
// however they were written.
func Of(config *rest.Config, endpoint *url.URL, proxy string, salt []string) Parts {
	var out Parts
	out[partToken] = sum(config.BearerToken, config.BearerTokenFile, config.Username, config.Password)
	out[partClientCert] = sum(config.CertFile, config.KeyFile, string(derOf(config.CertData)),
		string(derOf(config.KeyData)))
	out[partTrust] = sum(config.ServerName, config.CAFile, flag(config.Insecure), string(sortedDER(config.CAData)))
	out[partEndpoint] = sum(normalURL(endpoint), config.APIPath)
	out[partProxy] = sum(proxy)
	out[partOther] = sum(append(otherParts(config), salt...)...)

	return out
}

func otherParts(config *rest.Config) []string {
	out := []string{flag(config.DisableCompression), strings.Join(config.NextProtos, ",")}
	who := config.Impersonate
	out = append(out, who.UserName, who.UID, count(len(who.Groups)))
	out = append(out, who.Groups...)
	for _, key := range slices.Sorted(maps.Keys(who.Extra)) {
		out = append(out, key, count(len(who.Extra[key])))
		out = append(out, who.Extra[key]...)
	}
	if exec := config.ExecProvider; exec != nil {
		out = append(out, "exec", exec.APIVersion, exec.Command, flag(exec.ProvideClusterInfo), count(len(exec.Args)))
		out = append(out, exec.Args...)
		for _, env := range exec.Env {
			out = append(out, env.Name, env.Value)
		}
		if info, err := json.Marshal(exec.Config); exec.Config != nil && err == nil {
			out = append(out, "info", string(info))
		}
	}

	if provider := config.AuthProvider; provider != nil {
		out = append(out, "auth-provider", provider.Name)
		for _, key := range slices.Sorted(maps.Keys(provider.Config)) {
			out = append(out, key, provider.Config[key])
		}
	}

	return out
}

// sum hashes values with their lengths, so that different lists never have the
// same encoding.
func sum(values ...string) [sha256.Size]byte {
	h := sha256.New()
	for _, value := range values {
		writeValue(h, value)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func writeValue(h hash.Hash, value string) {
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(value))))
	_, _ = h.Write([]byte(value))
}

func flag(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func count(n int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }

// normalURL returns the parts of the URL that matter for a connection: host in
// lower case, no default port, no final slash.
func normalURL(u *url.URL) string {
	host := strings.ToLower(u.Host)
	switch u.Scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}

	return u.Scheme + "://" + host + strings.TrimRight(u.Path, "/")
}

// derOf returns the content of PEM blocks in their order, without armor,
// headers and comments; the data itself if there is no block.
func derOf(data []byte) []byte {
	blocks := pemBlocks(data)
	if len(blocks) == 0 {
		return data
	}
	return bytes.Join(blocks, nil)
}

// sortedDER is derOf for a set: the order and repetition of trusted
// certificates do not matter.
func sortedDER(data []byte) []byte {
	blocks := pemBlocks(data)
	if len(blocks) == 0 {
		return data
	}
	slices.SortFunc(blocks, bytes.Compare)
	return bytes.Join(slices.CompactFunc(blocks, bytes.Equal), nil)
}

func pemBlocks(data []byte) [][]byte {
	var out [][]byte
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return out
		}
		out = append(out, block.Bytes)
		data = rest
	}
}

// Expiry returns the earlier expiry of the client certificate and of a token
// that is a JWT; zero if neither has one.
func Expiry(config *rest.Config) time.Time {
	cert, token := certExpiry(config.CertData), tokenExpiry(config.BearerToken)
	switch {
	case cert.IsZero():
		return token
	case token.IsZero() || cert.Before(token):
		return cert
	}

	return token
}

func certExpiry(data []byte) time.Time {
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}

// tokenExpiry reads the exp claim without verifying the token: the server does
// that.
func tokenExpiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	// The bound, the year 9999, keeps the conversion to an integer defined.
	if err := json.Unmarshal(payload, &claims); err != nil || claims.Expires <= 0 || claims.Expires > 253402300799 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0)
}
