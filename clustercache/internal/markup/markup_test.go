// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package markup_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	stdhtml "html"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/fleetcache/fleetcache/clustercache/internal/markup"
)

// hostile are texts that must not be read as anything but text.
var hostile = []string{
	"",
	"plain",
	"name",
	"<script>alert(1)</script>",
	"</title></style></textarea><script>alert(1)</script>",
	`" onmouseover="alert(1)`,
	"' onfocus='alert(1)",
	"` autofocus onfocus=alert(1) `",
	"javascript:alert(1)",
	" \tJaVaScRiPt:alert(1)",
	"data:text/html,<script>alert(1)</script>",
	"//elsewhere.example/",
	"?a=b&c=d#e",
	"&lt;&amp;&#60;&#x3c;&ltscript&NewLine;&colon;",
	"<!-- --><![CDATA[ ]]><?xml ?>",
	"one\r\ntwo\rthree\nfour\tfive\ffour\vsix",
	"\x00\x01\x1f\x7f\u0080\u0085\u009f",
	"\xff<\xc0\xbcscript\xc0\xbe\xed\xa0\x80\xf4\x90\x80\x80",
	"\xe2\x3cscript\x3e", // a character that the bracket would belong to
	"\ufeff\u2028\u2029\u202e\ufffd\ufffe\uffff\U0001fffe\U0010ffff\ufdd0",
	"+ADw-script+AD4-",
	"100% %3Cscript%3E %zz",
}

// FuzzNothingButTextComesFromOthers: with any text in every position, a parser
// finds the same elements and attributes, and in them what was given.
func FuzzNothingButTextComesFromOthers(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	want := shape(parse(f, sample("plain")))
	f.Fuzz(func(t *testing.T, text string) {
		page := sample(text)
		require.Equal(t, want, shape(parse(t, page)), "%s", page)
		found := positions(parse(t, page))
		clean := readable(text)
		for _, position := range []string{"title", "h1", "p", "td", "a", "input.name", "input.value"} {
			require.Equal(t, clean, found[position], "%s in %s", position, page)
		}
		require.Equal(t, "one "+clean, found["span.class"])

		query, isQuery := strings.CutPrefix(found["a.href"], "?")
		require.True(t, isQuery)
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		require.Equal(t, parameters(text), values)
		address, err := url.Parse(found["b.href"])
		require.NoError(t, err)
		require.Equal(t, text, address.Fragment)
		address.Fragment, address.RawFragment = "", ""
		require.Equal(t, "https://example.com/book", address.String())
	})
}

// sample writes a page with a text in every position.
func sample(text string) []byte {
	var p markup.Page
	p.Document(func() {
		p.Element(markup.Head, func() {
			p.Void(markup.Meta.Fixed("http-equiv", "refresh").Number("content", 5))
			p.Leaf(markup.Title, text)
			p.Style("b > i { color: red }")
		})
		p.Element(markup.Body, func() {
			p.Leaf(markup.H1, text)
			p.Element(markup.P, func() {
				p.Text(text)
				p.Leaf(markup.Span.Class("one", text), "span")
				p.Leaf(markup.A.Link(markup.Query(parameters(text))), text)
				p.Element(markup.B.Link(markup.Section("https://example.com/book", text)), func() {})
			})
			p.Element(markup.Table, func() {
				p.Element(markup.TR, func() { p.Leaf(markup.TD, text) })
			})
			p.Void(markup.Input.Field(text, text).Fixed("type", "hidden"))
		})
	})
	return p.Bytes()
}

// parameters are those of a link, with a text as a value and as a name.
func parameters(text string) url.Values {
	values := url.Values{"name": {text}}
	values.Add(text, "value")
	return values
}

// readable is what a reader gets to see of a text.
func readable(text string) string {
	return strings.Map(func(r rune) rune {
		noncharacter := r >= 0xfdd0 && r <= 0xfdef || r%0x10000 >= 0xfffe
		control := r < 0x20 || r >= 0x7f && r <= 0x9f
		if noncharacter || control && !strings.ContainsRune("\t\n\f\r", r) {
			return '\ufffd'
		}
		return r
	}, string([]rune(text)))
}

func parse(t testing.TB, page []byte) *html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(string(page)))
	require.NoError(t, err)
	return root
}

// shape returns the elements and the names of their attributes.
func shape(root *html.Node) (out []string) {
	for n := range root.Descendants() {
		switch n.Type {
		case html.TextNode:
		case html.ElementNode:
			names := []string{n.Parent.Data + ">" + n.Data}
			for _, a := range n.Attr {
				names = append(names, a.Key)
			}
			out = append(out, strings.Join(names, " "))
		default:
			out = append(out, n.Data) // a document type, a comment
		}
	}

	return out
}

// positions returns the first text of each element, and its attributes.
func positions(root *html.Node) map[string]string {
	out := map[string]string{}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		out[n.Data] = ""
		if n.FirstChild != nil && n.FirstChild.Type == html.TextNode {
			out[n.Data] = n.FirstChild.Data
		}
		for _, a := range n.Attr {
			out[n.Data+"."+a.Key] = a.Val
		}
	}

	return out
}

// TestTextIsEscapedAsTheStandardLibraryDoes, whose function keeps what HTML has
// no notation for.
func TestTextIsEscapedAsTheStandardLibraryDoes(t *testing.T) {
	for _, text := range hostile {
		var p markup.Page
		p.Text(text)
		require.Equal(t, strings.ReplaceAll(stdhtml.EscapeString(readable(text)), "\r", "&#13;"), string(p.Bytes()))
	}
}

// TestElementsEndWhereTheirContentDoes shows all that a page has of its own.
func TestElementsEndWhereTheirContentDoes(t *testing.T) {
	require.Equal(t, `<!DOCTYPE html>
<html lang="en">
<head>
<meta http-equiv="refresh" content="5">
<title>a</title>
<style>b > i { color: red }</style></head>
<body>
<h1>a</h1>
<p>a<span class="one a">span</span><a href="?a=value&amp;name=a">a</a>`+
		`<b href="https://example.com/book#a"></b></p>
<table>
<tr><td>a</td></tr></table>
<input name="a" value="a" type="hidden"></body></html>`, string(sample("a")))
}

func TestAStyleSheetCannotEndItsElement(t *testing.T) {
	var p markup.Page
	require.Panics(t, func() { p.Style("</style><script>") })
}

// TestATagKeepsItsAttributes: a tag with one more attribute is another tag.
func TestATagKeepsItsAttributes(t *testing.T) {
	dim := markup.P.Class("dim")
	one, two := dim.Fixed("id", "one"), dim.Fixed("id", "two")
	var p markup.Page
	for _, tag := range []markup.Tag{markup.P, dim, one, two} {
		p.Leaf(tag)
	}
	require.Equal(t, `
<p></p>
<p class="dim"></p>
<p class="dim" id="one"></p>
<p class="dim" id="two"></p>`, string(p.Bytes()))
}

// TestVariablesCannotBeWrittenUnescaped compiles calls from another package:
// with a constant each is accepted, with a variable none is.
func TestVariablesCannotBeWrittenUnescaped(t *testing.T) {
	files := token.NewFileSet()
	library := check(t, files, "markup", "doc.go", "page.go", "tag.go", "escape.go", "address.go")
	for _, call := range []string{
		"new(markup.Page).Style(X)",
		"markup.P.Fixed(X, `a`)",
		"markup.P.Fixed(`id`, X)",
		"markup.Input.Fixed(X, `a`)",
		"markup.Input.Fixed(`id`, X)",
		"markup.Input.Number(X, 1)",
		"markup.Section(X, `a`)",
		"markup.A.Link(X)",
		"markup.A.Link(markup.Address(X))",
		"markup.A.Link(markup.Address{X})",
		"markup.P.Fixed(`id`, markup.constant(X))",
		"new(markup.Page).Leaf(markup.Tag{X, false, ``})",
	} {
		constant := !strings.HasPrefix(call, "markup.A") && !strings.Contains(call, "markup.constant") &&
			!strings.Contains(call, "Tag{")
		require.Equal(t, constant, compiles(t, files, library, strings.ReplaceAll(call, "X", "`a`")), call)
		require.False(t, compiles(t, files, library, strings.ReplaceAll(call, "X", "text")), call)
	}
	require.True(t, compiles(t, files, library, "new(markup.Page).Text(text)"))
}

// check returns the package of the given files, without what it imports.
func check(t *testing.T, files *token.FileSet, path string, names ...string) *types.Package {
	t.Helper()
	var parsed []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(files, name, nil, 0)
		require.NoError(t, err)
		parsed = append(parsed, file)
	}
	config := types.Config{
		Importer:         only{types.NewPackage("empty", "empty")},
		IgnoreFuncBodies: true,
		Error:            func(error) {}, // some types are missing
	}
	pkg, _ := config.Check(path, files, parsed, nil)
	pkg.MarkComplete()

	return pkg
}

// compiles reports whether an expression of another package is valid.
func compiles(t *testing.T, files *token.FileSet, library *types.Package, expression string) bool {
	t.Helper()
	file, err := parser.ParseFile(files, "user.go",
		"package user\nimport \"markup\"\nfunc use(text string) { "+expression+" }", 0)
	require.NoError(t, err)
	config := types.Config{Importer: only{library}}
	_, err = config.Check("user", files, []*ast.File{file}, nil)

	return err == nil
}

// only imports one package.
type only struct{ pkg *types.Package }

func (o only) Import(string) (*types.Package, error) { return o.pkg, nil }
