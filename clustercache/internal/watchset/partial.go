// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Partial returns the readable wants that may have an object of a namespace, or
// one without, and do not know whether what they lack exists: they select by
// labels or fields. A kind may have hundreds of them, so a Get looks at them
// only if no other want answers it.
func (s *Set) Partial(gvk schema.GroupVersionKind, namespace string) (of []*Want) {
	k := s.index.of(gvk)
	k.mu.RLock()
	defer k.mu.RUnlock()
	if len(k.partial) == 0 {
		return nil
	}
	for namespace := range k.wider(namespace) {
		for w := range k.partial[namespace] {
			of = append(of, w)
		}
	}
	return of
}
