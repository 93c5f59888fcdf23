// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ForApply is an option of reads from whose objects an apply configuration is
// extracted, as by client-go's ExtractConfigMap. Extracting needs
// managedFields: without them the result is empty, and applying that removes
// everything its manager owns from the remote object. Where the cache leaves
// them out (Informers.DropManagedFields) or may do so (Informers.Transforms of
// the resource), the API server is asked; a read in mode CacheOnly fails with
// [ErrUnsupported]. Elsewhere it changes nothing.
const ForApply forApply = true

type forApply bool

var (
	_ client.GetOption  = ForApply
	_ client.ListOption = ForApply
)

// ApplyToGet implements client.GetOption.
func (forApply) ApplyToGet(*client.GetOptions) {}

// ApplyToList implements client.ListOption.
func (forApply) ApplyToList(*client.ListOptions) {}

func (f forApply) applyToRead(o *readOptions) { o.forApply = bool(f) }

var errNoManagedFields = errors.New("the cache leaves managedFields out")

// lacksManagedFields returns why an apply configuration must not be extracted
// from what a hold has cached.
func (c *cluster) lacksManagedFields(h *hold) error {
	informers := &c.cc.options.Informers
	m := h.mapping.Load()
	if informers.DropManagedFields || m != nil && informers.Transforms[m.Resource.GroupResource()] != nil {
		return fmt.Errorf("%w: ForApply: %w", ErrUnsupported, errNoManagedFields)
	}
	return nil
}
