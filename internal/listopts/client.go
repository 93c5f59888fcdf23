// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package listopts

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Client returns a client that never sends options that select nothing: lists
// are empty, and nothing is deleted. controller-runtime's own sends the empty
// text of such a selector, so that everything is listed and deleted.
func Client(c client.Client) client.Client { return &selecting{Client: c} }

type selecting struct{ client.Client }

// List implements client.Reader.
func (s *selecting) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return Reader(s.Client).List(ctx, list, opts...)
}

// DeleteAllOf implements client.Writer.
func (s *selecting) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	if Nothing(&(&client.DeleteAllOfOptions{}).ApplyOptions(opts).ListOptions) != "" {
		return nil
	}
	return s.Client.DeleteAllOf(ctx, obj, opts...)
}

// Reader is [Client] for a reader.
func Reader(r client.Reader) client.Reader { return &selectingReader{Reader: r} }

type selectingReader struct{ client.Reader }

// List implements client.Reader.
func (s *selectingReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if Nothing((&client.ListOptions{}).ApplyOptions(opts)) != "" {
		return Empty(list)
	}
	return s.Reader.List(ctx, list, opts...)
}

// Empty makes a list the answer to options that select nothing.
func Empty(list client.ObjectList) error {
	list.SetResourceVersion("")
	list.SetContinue("")
	list.SetRemainingItemCount(nil)
	return meta.SetList(list, nil)
}
