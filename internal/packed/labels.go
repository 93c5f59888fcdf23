// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
)

// Labels is a digest of labels: each of them sets one of its bits. It lets most
// objects that a selector does not match be passed over without reading their
// labels.
type Labels uint64

var digestSeed = maphash.MakeSeed()

func (l *Labels) add(key, value string) {
	h := maphash.String(digestSeed, key) ^ bits.RotateLeft64(maphash.String(digestSeed, value), 1)
	*l |= 1 << (h % 64)
}

// digest returns the digest of labels.
func (t *text) digest() (l Labels) {
	r := t.reader()
	for r.enter(); r.more(); {
		key := t.key(&r)
		l.add(key, t.str(&r))
	}
	return l
}

// Required returns the digest of the labels that an object must have to match
// sel, as far as sel requires one value for a key.
func Required(sel labels.Selector) Labels {
	var l Labels
	if sel == nil {
		return l
	}
	requirements, selectable := sel.Requirements()
	if !selectable {
		return l
	}
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				l.add(r.Key(), values[0])
			}
		}
	}

	return l
}

// MayHave reports whether the object may have the required labels. False is
// certain.
func (o *Object) MayHave(required Labels) bool { return o.labels&required == required }

// MatchesLabels reports whether the labels match sel, without building a map. A
// nil selector matches everything. sel must not keep the strings that it is
// given. MatchesLabels panics if the body is damaged.
func (o *Object) MatchesLabels(sel labels.Selector) bool {
	if sel == nil {
		return true
	}
	if o.flags&hasLabels == 0 {
		return sel.Matches(noText)
	}
	of := o.openTexts()
	defer of.close()
	of.s.text.json = view(of.s.labels())

	return sel.Matches(&of.s.text)
}

// GetLabels returns the labels as a new map, or nil if there are none. It
// decompresses the beginning of the body, and panics if that is damaged.
func (o *Object) GetLabels() map[string]string {
	if o.flags&hasLabels == 0 {
		return nil
	}
	of := o.openTexts()
	defer of.close()
	t := text{string(of.s.labels())}

	return t.stringMap()
}

// GetOwnerReferences returns new owner references, or nil if there are none. It
// decompresses the beginning of the body, and panics if that is damaged.
func (o *Object) GetOwnerReferences() []metav1.OwnerReference {
	if o.flags&hasOwners == 0 {
		return nil
	}
	return slices.AppendSeq([]metav1.OwnerReference{}, o.ownersText().owners())
}

// OwnerUIDs yields the UIDs of the owner references. It decompresses the
// beginning of the body, and panics if that is damaged.
func (o *Object) OwnerUIDs() iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		if o.flags&hasOwners == 0 {
			return
		}
		for ref := range o.ownersText().owners() {
			if !yield(ref.UID) {
				return
			}
		}
	}
}

// ownersText returns a copy of the owner references.
func (o *Object) ownersText() *text {
	of := o.openTexts()
	defer of.close()
	return &text{string(of.s.owners())}
}

// openTexts opens the part of the body that has labels and owner references.
func (o *Object) openTexts() opened {
	of, err := o.open(toTexts)
	if err != nil {
		panic(o.decodeError(nil, err))
	}
	return of
}
