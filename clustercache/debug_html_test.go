// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
)

// TestDebugPageHasTheSameElementsWhateverOthersWrote puts each hostile text
// where others can write: a browser finds the same elements and attributes as
// with a harmless text, every link leads to the page itself or to the runbook,
// and the text can be read wherever it was given.
func TestDebugPageHasTheSameElementsWhateverOthersWrote(t *testing.T) {
	for _, view := range []string{"all clusters", "by reason", "none selected", "one cluster"} {
		want := dissect(t, hostilePage(view, "plain"))
		require.Positive(t, want.count("plain"), view)
		for _, text := range []string{
			"<script>alert(1)</script>",
			"</title></style></td></table><script>alert(1)</script>",
			`" onmouseover="alert(1)" x="`,
			"' onfocus='alert(1)' x='",
			"javascript:alert(1)",
			"//elsewhere.example/",
			"?cluster=a&phase=b#c",
			"&lt;script&gt;&#60;&NewLine;",
			"<!-- -->",
			"one\ntwo\r\nthree\tfour",
			"\xff<\xc0\xbcscript>\xed\xa0\x80",
			"\xe2<b>",
			"\u202ebackwards\u2066",
		} {
			got := dissect(t, hostilePage(view, text))
			require.Equal(t, want.shape, got.shape, "%s: %q", view, text)
			require.Equal(t, want.count("plain"), got.count(string([]rune(text))), "%s: %q", view, text)
			for _, link := range got.links {
				require.Regexp(t, `^(\?|https://github\.com/fleetcache/fleetcache/blob/main/docs/runbook\.md#)`, link)
			}
		}
	}
}

// hostilePage has a text in all fields that others write.
func hostilePage(view, text string) *debugPage {
	now, err := time.Now(), errors.New(text)
	key := client.ObjectKey{Name: "one"} // names of clusters have an escape of their own
	gvk := schema.GroupVersionKind{Kind: text, Version: "v1"}
	one := status.Cluster{
		Cluster:       key,
		Phase:         status.Phase(text),
		Since:         now,
		Reason:        text,
		LastError:     err,
		Failures:      2,
		Endpoint:      text,
		UID:           text,
		Epoch:         text,
		SameAs:        []client.ObjectKey{key},
		ServerVersion: text,
		Revision:      text,
		Labels:        map[string]string{"key": text, text: "value"},
		Stale:         true,
		Ownership:     &ownership.State{Owned: true, Since: now},
	}
	other := status.Cluster{
		Cluster:   key,
		Phase:     status.Phase(text),
		Reason:    text,
		LastError: err,
		Connected: true,
		Ownership: &ownership.State{Slot: 1},
	}
	values := url.Values{}
	for _, name := range []string{"phase", "reason", "q", "group", "refresh", "cluster"} {
		values.Set(name, text)
	}
	p := &debugPage{
		Time:       now,
		Name:       text,
		Reasons:    map[string]string{},
		debugQuery: newDebugQuery(values),
		shared:     true,
	}
	p.grouped = view == "by reason"
	if view == "none selected" {
		p.phase += " other"
	} else {
		p.phase, p.reason, p.search = "", "", ""
	}
	p.group = &ownership.Group{
		Trouble:  text,
		Replicas: []ownership.Replica{{Identity: text, State: text}, {Identity: text}},
		Slots: []ownership.Holding{
			{Reason: text, Standbys: []string{text}, Since: now},
			{Owner: text, Reason: text, Standbys: []string{text}},
		},
	}
	p.Elsewhere = []debugElsewhere{{key, &p.group.Slots[0]}, {key, &p.group.Slots[1]}}
	p.arrange([]status.Cluster{one, other})
	if view == "one cluster" {
		p.focused = text
		p.Timeline = []debugChange{{Time: now, Phase: status.Phase(text), Reason: text}}
		watch := status.Watch{
			GVK:           gvk,
			LabelSelector: text,
			LastError:     err,
			Informer:      informerpool.Status{State: informerpool.State(text), ResourceVersion: text},
		}
		p.Watches = []status.Watch{watch, watch}
		p.Watches[0].Mapped = true
		p.Users = []Use{{Key: status.WatchKey{GVK: gvk, Namespace: text}, Owners: []Owner{
			{GVK: gvk, ObjectKey: client.ObjectKey{Namespace: text, Name: text}},
			{ObjectKey: client.ObjectKey{Name: text}},
		}}}
	}
	return p
}

// dissected is what a browser finds in a page.
type dissected struct {
	shape []string // elements with the names of their attributes
	links []string
	texts []string // between tags, and as values
}

// count returns how often a text occurs.
func (d dissected) count(text string) (n int) {
	for _, t := range d.texts {
		n += strings.Count(t, text)
	}
	return n
}

func dissect(t *testing.T, p *debugPage) (d dissected) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(string(p.html())))
	require.NoError(t, err)
	for n := range root.Descendants() {
		switch n.Type {
		case html.TextNode:
			d.texts = append(d.texts, n.Data)
			continue
		case html.CommentNode:
			t.Fatal(n.Data)
		}
		element := n.Data
		for _, a := range n.Attr {
			element += " " + a.Key
			switch a.Key {
			case "href":
				d.links = append(d.links, a.Val)
			case "value":
				d.texts = append(d.texts, a.Val)
			}
		}
		d.shape = append(d.shape, element)
	}

	return d
}
