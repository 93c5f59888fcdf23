// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	stdjson "encoding/json"
	"net/netip"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// zoo has a field of every sort that a user's Go type may contain.
type zoo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	ZooInline         `json:",inline"`

	Int         int64                 `json:"int,omitempty"`
	Int8        int8                  `json:"int8,omitempty"`
	Uint        uint64                `json:"uint,omitempty"`
	Float       float64               `json:"float,omitempty"`
	Bool        *bool                 `json:"bool,omitempty"`
	String      zooString             `json:"string,omitempty"`
	Bytes       []byte                `json:"bytes,omitempty"`
	Slice       []zooString           `json:"slice,omitempty"`
	Slices      [][]*ZooInline        `json:"slices,omitempty"`
	Map         map[zooString]zooPart `json:"map,omitempty"`
	Strings     map[string]string     `json:"strings,omitempty"`
	Named       zooLabels             `json:"named,omitempty"`
	Any         any                   `json:"any,omitempty"`
	Ptr         *zooPart              `json:"ptr,omitempty"`
	PtrPtr      **zooPart             `json:"ptrptr,omitempty"`
	Quantity    resource.Quantity     `json:"quantity"`
	QuantityPtr *resource.Quantity    `json:"quantityPtr,omitempty"`
	IntOrString intstr.IntOrString    `json:"intOrString"`
	Time        metav1.Time           `json:"time"`
	TimePtr     *metav1.Time          `json:"timePtr,omitempty"`
	Micro       *metav1.MicroTime     `json:"micro,omitempty"`
	Raw         stdjson.RawMessage    `json:"raw,omitempty"`
	Extension   runtime.RawExtension  `json:"extension"`
	Array       [2]int                `json:"array,omitempty"`
	Keyed       map[int]bool          `json:"keyed,omitempty"`
	Number      stdjson.Number        `json:"number,omitempty"`
	Text        netip.Addr            `json:"text"`
	TextKeyed   map[netip.Addr]int    `json:"textKeyed,omitempty"`
	Iface       interface{ Foo() }    `json:"iface,omitempty"`
	Odd         zooOdd                `json:"odd"`
	Shadow      zooShadow             `json:"shadow"`
	Untagged    string
	Ignored     string `json:"-"`
	unexported  string
}

type (
	zooString string
	zooLabels map[string]string
)

// ZooInline has fields that are promoted.
type ZooInline struct {
	Embedded string `json:"embedded,omitempty"`
	Other    *int32 `json:"other,omitempty"`
}

// zooPart refers to its own type.
type zooPart struct {
	Int    int32              `json:"int,omitempty"`
	String string             `json:"string,omitempty"`
	Ptr    *zooPart           `json:"ptr,omitempty"`
	Parts  map[string]zooPart `json:"parts,omitempty"`
	List   []zooPart          `json:"list,omitempty"`
}

// zooOdd must be left to the library: it has conflicting names, options and
// embedded pointers.
type zooOdd struct {
	*ZooInline
	Embedded string `json:"embedded"`
	Quoted   int    `json:"quoted,string"`
}

// zooShadow hides a promoted field.
type zooShadow struct {
	Embedded string `json:"embedded"`
	ZooInline
}

// DeepCopyObject implements runtime.Object.
func (z *zoo) DeepCopyObject() runtime.Object { panic("not needed: " + z.unexported) }

func TestFieldNamesFollowTheirTags(t *testing.T) {
	for tag, want := range map[string]struct {
		name string
		use  int
	}{
		``:                      {"Field", namedField},
		`json:"a"`:              {"a", namedField},
		`json:"a,omitempty"`:    {"a", namedField},
		`json:",omitempty"`:     {"Field", namedField},
		`json:",inline"`:        {"Field", namedField},
		`json:"-"`:              {"", noField},
		`json:"` + `-` + `,"`:   {"-", namedField},
		`json:"a,string"`:       {"", unusualField},
		`json:"a,format:RFC"`:   {"", unusualField},
		`json:"a b"`:            {"", unusualField},
		`json:"ä"`:              {"", unusualField},
		`protobuf:"1" yaml:"x"`: {"Field", namedField},
	} {
		name, use := fieldName(reflect.StructField{Name: "Field", Tag: reflect.StructTag(tag)})
		require.Equal(t, want.use, use, tag)
		require.Equal(t, want.name, name, tag)
	}
	_, use := fieldName(reflect.StructField{Name: "field", PkgPath: "p"})
	require.Equal(t, noField, use)
	_, use = fieldName(reflect.StructField{Name: "Field", Anonymous: true})
	require.Equal(t, promotedFields, use)
}
