// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/tools/clientcmd/api"
)

// readFiles replaces the references to files by their content, and returns the
// paths. As in kubectl, data in the kubeconfig takes precedence over the file
// of a certificate or key, and a file over a token. Every reference is checked
// before the first file is opened, including those without precedence.
func (d *description) readFiles(root, dir string, cluster *api.Cluster, user *api.AuthInfo) ([]string, error) {
	refs := []struct {
		field, path string
		wins        bool
		into        func([]byte)
	}{
		{"user.tokenFile", user.TokenFile, true, func(b []byte) { d.token = string(b) }},
		{"user.client-key", user.ClientKey, len(d.key) == 0, func(b []byte) { d.key = b }},
		{"user.client-certificate", user.ClientCertificate, len(d.cert) == 0, func(b []byte) { d.cert = b }},
		{"cluster.certificate-authority", cluster.CertificateAuthority, len(d.ca) == 0, func(b []byte) { d.ca = b }},
	}
	for _, ref := range refs {
		if ref.path != "" && root == "" {
			return nil, forbidden(ref.field, "names a file", "Files")
		}
		if ref.path != "" && dir == "" && !filepath.IsAbs(ref.path) {
			return nil, refused(ref.field, "names a file by a relative path")
		}
	}

	var read []string
	for _, ref := range refs {
		if ref.path == "" || !ref.wins {
			continue
		}
		path := ref.path
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		read = append(read, path)
		data, err := readBelow(root, path)
		if err != nil {
			return read, asFieldError(ref.field, err)
		}
		ref.into(data)
	}

	return read, nil
}

var (
	errOutside   = errors.New("is outside of the permitted directory")
	errTooBig    = errors.New("is too big")
	errIrregular = errors.New("is not a regular file")
)

// asFieldError keeps paths out of the error: the author of the kubeconfig must
// not learn which files exist.
func asFieldError(field string, err error) error {
	switch {
	case errors.Is(err, errTooBig):
		return invalid(field, "names a file that "+errTooBig.Error())
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, errIrregular):
		return invalid(field, "names a file that cannot be read")
	}

	return refused(field, "names a file that "+errOutside.Error())
}

// readBelow reads a file below root. [os.Root] enforces "below" while opening,
// so a link that is swapped in between cannot lead outside.
func readBelow(root, path string) ([]byte, error) {
	inside, err := filepath.Rel(root, path)
	if err != nil {
		return nil, errOutside
	}
	if root == string(filepath.Separator) { // every file is below it, wherever links lead
		file, err := os.OpenFile(path, readOnly, 0)
		if err != nil {
			return nil, err
		}
		return readRegular(file, DefaultMaxBytes)
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	file, err := dir.OpenFile(inside, readOnly, 0)
	if err != nil {
		return nil, err
	}
	return readRegular(file, DefaultMaxBytes)
}

// readOnly does not block: opening a pipe otherwise waits for its writer, who
// may be the author of the kubeconfig.
const readOnly = os.O_RDONLY | syscall.O_NONBLOCK

// readRegular reads and closes a file, which must be a regular one.
func readRegular(file *os.File, limit int) ([]byte, error) {
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errIrregular
	}
	data, err := io.ReadAll(io.LimitReader(file, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > limit {
		return nil, errTooBig
	}
	return data, nil
}
