// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
)

// ForApply is a read option for objects from which an apply configuration is
// extracted, as by client-go's ExtractConfigMap. Extraction needs
// managedFields: without them the result is empty, and applying it removes
// everything its manager owns from the remote object. If the cache leaves
// managedFields out (Informers.DropManagedFields), or may do so
// (Informers.Transforms of the resource), the read goes to the API server, and
// fails with [ErrUnsupported] in mode CacheOnly. Otherwise the option has no
// effect.
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

// lacksManagedFields returns an error if an apply configuration must not be
// extracted from the cached objects of a want.
func (c *cluster) lacksManagedFields(want *watchset.Want) error {
	informers := &c.cc.options.Informers
	m := want.Mapping()
	if informers.DropManagedFields || m != nil && informers.Transforms[m.Resource.GroupResource()] != nil {
		return fmt.Errorf("%w: ForApply: %w", ErrUnsupported, errNoManagedFields)
	}
	return nil
}
