// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

// stored is what a process leaves of objects.
type stored struct {
	dictionaries []StoredDictionary
	objects      [][]byte
}

func store(objects []*Object) (s stored) {
	for _, o := range objects {
		number := 0
		if d := DictionaryOf(o); d != nil {
			for number < len(s.dictionaries) && s.dictionaries[number].ID != d.ID() {
				number++
			}
			if number == len(s.dictionaries) {
				text := d.AppendStored(nil)
				s.dictionaries = append(s.dictionaries,
					StoredDictionary{ID: d.ID(), Read: func() ([]byte, error) { return text, nil }})
			}
		}
		s.objects = append(s.objects, AppendStored(nil, o, byte(number)))
	}
	return s
}

// many returns packed objects of all encodings: of the first dictionary, which
// suits the others badly, and of a second one.
func many(t *testing.T, c *Codec, from int) (out []*Object) {
	t.Helper()
	k := c.Kind(podGVK)
	note := noise(uint64(from), 400)
	for i := range 2 * samples {
		out = append(out, mustPack(t, c, k, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{`+
			`"name":"p%d","uid":"00000000-0000-4000-8000-%012d","annotations":{"note":%q}}}`, i, from+i, note)))
	}
	for i := range (samples + 2) * stride {
		out = append(out, mustPack(t, c, k, pods(from+i)))
	}
	return out
}

// odd are objects whose headers cannot represent everything.
func odd(t *testing.T, c *Codec) (out []*Object) {
	t.Helper()
	k := c.Kind(configMapGVK)
	for _, metadata := range []string{
		`"name":"a"`,
		`"name":"a","namespace":"b","uid":"no UUID","resourceVersion":"x1","generation":-3`,
		`"name":"a","creationTimestamp":"2024-02-03T04:05:06.5+02:00","deletionTimestamp":"2024-02-03T04:05:06Z",` +
			`"deletionGracePeriodSeconds":3,"finalizers":["f"]`,
		`"name":"a","generation":99999999999,"labels":{"a":"b","c":"ä"},"annotations":{"d":"e"}`,
		`"name":"` + string(bytes.Repeat([]byte("n"), 300)) + `","resourceVersion":"18446744073709551615"`,
	} {
		out = append(out, mustPack(t, c, k, fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{%s},"data":{"k":"v"}}`, metadata)))
	}
	return out
}

// TestStoredObjectComesBack in another process, as it was.
func TestStoredObjectComesBack(t *testing.T) {
	selector, err := labels.Parse("a=b")
	require.NoError(t, err)
	before, after := NewCodec(), NewCodec()
	secrets := make([]*Object, 0, samples+2)
	for i := range cap(secrets) {
		secrets = append(secrets, mustPack(t, before, before.Kind(secretGVK), tlsSecret(i)))
	}
	require.EqualValues(t, codecNested, secrets[samples].body[0])
	for name, objects := range map[string][]*Object{
		"Pods":    many(t, before, 0),
		"odd":     odd(t, before),
		"Secrets": secrets,
	} {
		s := store(objects)
		shelf, err := after.Kind(objects[0].Kind().GVK()).Shelf(s.dictionaries)
		require.NoError(t, err, name)
		for i, o := range objects {
			back, err := shelf.Object(s.objects[i])
			require.NoError(t, err, name)
			require.Equal(t, string(o.AppendJSON(nil)), string(back.AppendJSON(nil)), name)
			require.Equal(t, o.DeepCopyObject(), back.DeepCopyObject(), name)
			require.Equal(t, o.Size(), back.Size(), name)
			require.Equal(t, o.GetResourceVersion(), back.GetResourceVersion(), name)
			require.Equal(t, o.GetUID(), back.GetUID(), name)
			require.Equal(t, o.GetGeneration(), back.GetGeneration(), name)
			require.Equal(t, o.GetDeletionTimestamp(), back.GetDeletionTimestamp(), name)
			require.Equal(t, o.GetLabels(), back.GetLabels(), name)
			require.Equal(t, o.labels, back.labels, name)
			require.Equal(t, o.MatchesLabels(selector), back.MatchesLabels(selector), name)
		}
	}
}

// TestStoredDictionaryPacksFurtherObjects of the next process, which makes none.
func TestStoredDictionaryPacksFurtherObjects(t *testing.T) {
	s := store(many(t, NewCodec(), 0))
	require.Len(t, s.dictionaries, 2)
	c := NewCodec()
	k := c.Kind(podGVK)
	_, err := k.Shelf(s.dictionaries)
	require.NoError(t, err)
	o := mustPack(t, c, k, pods(1))
	require.Equal(t, s.dictionaries[1].ID, DictionaryOf(o).ID(), "the better one")
	more := many(t, c, 301)
	require.Len(t, store(more).dictionaries, 1)
}

// TestStoredDictionariesStandBesideOwn: a process that has packed objects keeps
// its own dictionaries, and reads objects of many others.
func TestStoredDictionariesStandBesideOwn(t *testing.T) {
	c := NewCodec()
	own := many(t, c, 0)
	packs := DictionaryOf(own[len(own)-1])
	k := c.Kind(podGVK)
	for i := range slots/generations - 1 {
		objects := many(t, NewCodec(), 301*(i+1))
		s := store(objects)
		for range 2 { // which needs no more slots
			shelf, err := k.Shelf(s.dictionaries)
			require.NoError(t, err)
			for j, text := range s.objects {
				back, err := shelf.Object(text)
				require.NoError(t, err)
				require.Equal(t, string(objects[j].AppendJSON(nil)), string(back.AppendJSON(nil)))
			}
		}
	}
	require.Same(t, packs, DictionaryOf(mustPack(t, c, k, pods(1))))
	_, err := k.Shelf(store(many(t, NewCodec(), 1204)).dictionaries)
	require.ErrorContains(t, err, "more than 8 dictionaries")
}

// TestDamagedStoredObjectIsNoObject, whatever is missing from it.
func TestDamagedStoredObjectIsNoObject(t *testing.T) {
	c := NewCodec()
	objects := append(many(t, c, 0)[2*samples:2*samples+1], odd(t, c)...)
	for _, o := range objects {
		s := store([]*Object{o})
		shelf, err := NewCodec().Kind(o.Kind().GVK()).Shelf(s.dictionaries)
		require.NoError(t, err)
		header := len(s.objects[0]) - len(o.body)
		for n := range header + 2 {
			_, err := shelf.Object(s.objects[0][:n])
			require.ErrorIs(t, err, ErrStored, n)
		}
		for i := range header {
			for bit := range 8 {
				damaged := bytes.Clone(s.objects[0])
				damaged[i] ^= 1 << bit
				_, err := shelf.Object(damaged)
				require.True(t, err == nil || errors.Is(err, ErrStored)) // and it does not panic
			}
		}
	}
}

// TestDamagedDictionaryIsNotUsed, nor another one than that of the objects.
func TestDamagedDictionaryIsNotUsed(t *testing.T) {
	s := store(many(t, NewCodec(), 0))
	whole, err := s.dictionaries[0].Read()
	require.NoError(t, err)
	k := NewCodec().Kind(podGVK)
	for i := 0; i < len(whole); i += 97 {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1
		for _, text := range [][]byte{damaged, whole[:i]} {
			_, err := k.Shelf([]StoredDictionary{
				{ID: s.dictionaries[0].ID, Read: func() ([]byte, error) { return text, nil }},
			})
			require.ErrorIs(t, err, ErrStored)
		}
	}
	failed := errors.New("disk")
	_, err = k.Shelf([]StoredDictionary{{
		ID:   s.dictionaries[0].ID,
		Read: func() ([]byte, error) { return nil, failed },
	}})
	require.ErrorIs(t, err, failed)
	_, err = k.Shelf([]StoredDictionary{{ID: s.dictionaries[0].ID, Read: s.dictionaries[1].Read}})
	require.ErrorIs(t, err, ErrStored)
}

// TestObjectWithoutItsDictionaryIsNoObject.
func TestObjectWithoutItsDictionaryIsNoObject(t *testing.T) {
	objects := many(t, NewCodec(), 0)
	last := objects[len(objects)-1]
	for _, dictionaries := range [][]StoredDictionary{nil, {{}}} {
		shelf, err := NewCodec().Kind(podGVK).Shelf(dictionaries)
		require.NoError(t, err)
		_, err = shelf.Object(AppendStored(nil, last, 0))
		require.ErrorIs(t, err, ErrStored)
	}
}
