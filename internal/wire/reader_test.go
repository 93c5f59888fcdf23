// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/wire"
	"github.com/fleetcache/fleetcache/internal/wire/wiretest"
)

func frame(kind string, object []byte) []byte {
	return append(append(append([]byte(`{"type":"`+kind+`","object":`), object...), '}'), '\n')
}

func TestFramesOfARealisticStream(t *testing.T) {
	var stream []byte
	const n = 50
	for i := range n {
		stream = append(stream, frame(wire.Modified, wiretest.Pod(i))...)
	}
	for _, size := range []int{1, 100, 1000, 1 << 14, 1 << 20} {
		r := wire.NewFrameReader(&pieces{stream, size}, wire.Limits{})
		for i := range n {
			fr, err := r.Next()
			require.NoError(t, err)
			require.Equal(t, wire.Modified, fr.Type)
			require.Equal(t, string(wiretest.Pod(i)), string(fr.Object))
			it, err := r.Scan()
			require.NoError(t, err)
			require.NotEmpty(t, it.UID)
		}
		_, err := r.Next()
		require.Equal(t, io.EOF, err)
	}
}

// hold fails the test if a read begins while the reader holds a buffer and no
// frame is pending.
type hold struct {
	t      *testing.T
	frames [][]byte
	reader *wire.FrameReader
	rest   []byte
}

func (h *hold) Read(b []byte) (int, error) {
	if len(h.rest) == 0 {
		require.False(h.t, h.reader.HoldsBuffer(), "an idle watch holds a buffer")
		if len(h.frames) == 0 {
			return 0, io.EOF
		}
		h.rest, h.frames = h.frames[0], h.frames[1:]
	}
	n := copy(b, h.rest)
	h.rest = h.rest[n:]
	return n, nil
}

func TestIdleFrameReaderHoldsNoBuffer(t *testing.T) {
	require.LessOrEqual(t, int(wire.FrameReaderSize), 512)
	h := &hold{t: t, frames: [][]byte{frame(wire.Added, wiretest.Pod(1)), frame(wire.Added, []byte(`{}`)),
		frame(wire.Deleted, wiretest.Pod(2))}}
	h.reader = wire.NewFrameReader(h, wire.Limits{})
	for range 3 {
		_, err := h.reader.Next()
		require.NoError(t, err)
		_, err = h.reader.Scan()
		require.NoError(t, err)
	}
	_, err := h.reader.Next()
	require.Equal(t, io.EOF, err)
	require.False(t, h.reader.HoldsBuffer())
}

func TestFrameIsDeliveredBeforeTheNextOneBegins(t *testing.T) {
	pr, pw := io.Pipe()
	r := wire.NewFrameReader(pr, wire.Limits{})
	for i := range 3 {
		// The write ends only once all of it has been read, so no newline can
		// follow yet.
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = pw.Write(bytes.TrimSpace(frame(wire.Added, wiretest.Pod(i)))) })
		fr, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, string(wiretest.Pod(i)), string(fr.Object))
		_, err = r.Scan()
		require.NoError(t, err)
		wg.Wait()
	}
	require.NoError(t, pw.Close())
	_, err := r.Next()
	require.Equal(t, io.EOF, err)
}

func TestFramesEndCleanlyOnlyBetweenFrames(t *testing.T) {
	whole := frame(wire.Added, []byte(`{"a":"}"}`))
	for n := range len(whole) + 1 {
		r := wire.NewFrameReader(bytes.NewReader(whole[:n]), wire.Limits{})
		fr, err := r.Next()
		switch {
		case n == 0:
			require.Equal(t, io.EOF, err)
		case n < len(whole)-1:
			require.Equal(t, io.ErrUnexpectedEOF, err)
		default:
			require.NoError(t, err)
			require.Equal(t, `{"a":"}"}`, string(fr.Object))
			_, err = r.Next()
			require.Equal(t, io.EOF, err)
		}
	}
}

func TestReadersReturnTheBodysOwnErrorsAndStayFailed(t *testing.T) {
	reset := errors.New("connection reset")
	body := func(s string) io.Reader { return io.MultiReader(strings.NewReader(s), iotest.ErrReader(reset)) }
	f := wire.NewFrameReader(body(`{"type":"ADDED","object":{}}{"type":`), wire.Limits{})
	_, err := f.Next()
	require.NoError(t, err)
	for range 2 {
		_, err = f.Next()
		require.Equal(t, reset, err)
	}
	l := wire.NewListReader(body(`{"items":[{},{`), wire.Limits{})
	_, err = l.Next()
	require.NoError(t, err)
	for range 2 {
		_, err = l.Next()
		require.Equal(t, reset, err)
	}
}

// silent returns neither data nor an error.
type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

func TestBodyWithoutProgressIsAnError(t *testing.T) {
	_, err := wire.NewFrameReader(silent{}, wire.Limits{}).Next()
	require.Equal(t, io.ErrNoProgress, err)
	_, err = wire.NewListReader(silent{}, wire.Limits{}).Next()
	require.Equal(t, io.ErrNoProgress, err)
}

// endless repeats its content forever.
type endless struct {
	content string
	at      int
}

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = e.content[e.at%len(e.content)]
		e.at++
	}
	return len(b), nil
}

func TestEndlessBodiesHitALimit(t *testing.T) {
	limits := wire.Limits{Object: 1 << 12, Response: 1 << 18}
	for name, body := range map[string]io.Reader{
		"object":          io.MultiReader(strings.NewReader(`{"type":"ADDED","object":{"a":"`), &endless{content: "x"}),
		"nesting":         &endless{content: `{"type":`},
		"key":             io.MultiReader(strings.NewReader(`{"`), &endless{content: "x"}),
		"space in object": io.MultiReader(strings.NewReader(`{"type":"ADDED","object":{`), &endless{content: " \n"}),
	} {
		f := wire.NewFrameReader(body, limits)
		_, err := f.Next()
		var limit *wire.LimitError
		require.ErrorAs(t, err, &limit, name)
		require.Equal(t, &wire.LimitError{What: "object bytes", Limit: 1 << 12}, limit)
		require.False(t, f.HoldsBuffer())
	}
	for name, c := range map[string]struct {
		start, repeat, what string
	}{
		"item":        {`{"items":[{"a":"`, "x", "object bytes"},
		"number":      {`{"items":[`, "1", "object bytes"},
		"key":         {`{"`, "x", "object bytes"},
		"metadata":    {`{"metadata":`, "[", "object bytes"},
		"items":       {`{"items":[{}`, ",{}", "response bytes"},
		"space":       {`{"items":[`, " ", "response bytes"},
		"members":     {`{"a":1`, `,"a":1`, "response bytes"},
		"space after": {`{"items":[]}`, "\n", "response bytes"},
	} {
		l := wire.NewListReader(io.MultiReader(strings.NewReader(c.start), &endless{content: c.repeat}), limits)
		var err error
		for err == nil {
			if _, err = l.Next(); err == nil {
				_, err = l.Scan()
				require.NoError(t, err)
				require.LessOrEqual(t, l.BufferSize(), 1<<17)
			}
		}
		var limit *wire.LimitError
		require.ErrorAs(t, err, &limit, name)
		require.Equal(t, c.what, limit.What, name)
	}
}

func TestObjectLimitIsExact(t *testing.T) {
	object := []byte(`{"a":"` + strings.Repeat("x", 2000) + `"}`)
	page := append(append([]byte(`{"items":[`), object...), "]}"...)
	for _, extra := range []int{0, 1} {
		limits := wire.Limits{Object: len(object) - extra}
		_, frameErr := wire.NewFrameReader(bytes.NewReader(frame(wire.Added, object)), limits).Next()
		_, listErr := wire.NewListReader(bytes.NewReader(page), limits).Next()
		if extra == 0 {
			require.NoError(t, frameErr)
			require.NoError(t, listErr)
			continue
		}
		var limit *wire.LimitError
		require.ErrorAs(t, frameErr, &limit)
		require.ErrorAs(t, listErr, &limit)
	}
}

func TestObjectLimitHoldsWhileScanningAhead(t *testing.T) {
	small, large := []byte(`{"a":1}`), []byte(`{"a":"`+strings.Repeat("x", 2000)+`"}`)
	limits := wire.Limits{Object: len(large) - 1}
	f := wire.NewFrameReader(bytes.NewReader(append(frame(wire.Added, small), frame(wire.Added, large)...)), limits)
	l := wire.NewListReader(strings.NewReader(`{"items":[`+string(small)+`,`+string(large)+`]}`), limits)
	_, err := f.Next()
	require.NoError(t, err)
	_, err = f.Scan()
	require.NoError(t, err)
	_, err = l.Next()
	require.NoError(t, err)
	_, err = l.Scan()
	require.NoError(t, err)
	var limit *wire.LimitError
	_, err = f.Next()
	require.ErrorAs(t, err, &limit)
	_, err = l.Next()
	require.ErrorAs(t, err, &limit)
}

func TestPooledBuffersDoNotStayLarge(t *testing.T) {
	big := []byte(`{"a":"` + strings.Repeat("x", 2<<20) + `"}`)
	page := append(append([]byte(`{"items":[`), big...), `,{}]}`...)
	l := wire.NewListReader(&pieces{page, 1000}, wire.Limits{})
	_, err := l.Next()
	require.NoError(t, err)
	require.LessOrEqual(t, l.BufferSize(), 4<<20)
	l.Close()
	require.Zero(t, l.BufferSize())
	_, err = l.Next()
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF)

	l = wire.NewListReader(strings.NewReader(`{"items":[{}]}`), wire.Limits{})
	_, err = l.Next()
	require.NoError(t, err)
	require.LessOrEqual(t, l.BufferSize(), 1<<16)
}

func TestDocumentsThatAreNoListAreRefused(t *testing.T) {
	for page, want := range map[string]string{
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":403}`: "kind",
		`{"kind":"Status","items":[]}`:            "kind",
		`{"kind":"Pod","metadata":{"name":"x"}}`:  "items",
		`{}`:                                      "items",
		`{"items":{}}`:                            "items",
		`{"items":"x"}`:                           "items",
		`{"items":[{}],"items":[{}]}`:             "items",
		`{"items":[],"metadata":[]}`:              "metadata",
		`{"items":[],"metadata":{"continue":1}}`:  "metadata.continue",
		`{"items":[],"kind":7}`:                   "kind",
		`<html><body>please log in</body></html>`: "",
		`[]`:                             "",
		`"items"`:                        "",
		`{"items":[]}{"items":[]}`:       "",
		`{"items":[]}garbage`:            "",
		`{"items":[],"metadata":{"a":}}`: "",
		`{"items":[{}}]}`:                "",
		`{"items":[{}]],"metadata":{}}`:  "",
		`{"items":[]` + "\x00" + `,"metadata":null}`: "",
	} {
		_, _, err := readList([]byte(page), 4, false)
		requireTyped(t, err)
		if refused, ok := errors.AsType[*wire.FieldError](err); ok {
			require.Equal(t, want, refused.Field, page)
		} else {
			require.Empty(t, want, "%s: %v", page, err)
		}
	}
}

func TestListHeaderMayStandBehindTheItems(t *testing.T) {
	page := `{"apiVersion":"x.io/v1","items":[{"kind":"X"},{"kind":"X"}],"kind":"XList",` +
		`"metadata":{"continue":"tok\u0065n","remainingItemCount":41,"resourceVersion":"9"}}`
	items, header, err := readList([]byte(page), 2, true)
	require.NoError(t, err)
	require.Len(t, items, 2)
	require.Equal(t, wire.ListHeader{APIVersion: "x.io/v1", Kind: "XList", ResourceVersion: "9", Continue: "token",
		Remaining: 41}, header)
}

func TestScanBeforeNextIsAnError(t *testing.T) {
	_, err := wire.NewFrameReader(strings.NewReader(""), wire.Limits{}).Scan()
	require.Error(t, err)
	_, err = wire.NewListReader(strings.NewReader(""), wire.Limits{}).Scan()
	require.Error(t, err)
}

func TestRepeatedKeysAreResolvedWhileScanningAhead(t *testing.T) {
	l := wire.NewListReader(strings.NewReader(`{"items":[{},{"metadata":{"name":"a"},"metadata":{"uid":"u"}},{}]}`),
		wire.Limits{})
	var got []string
	for range 3 {
		_, err := l.Next()
		require.NoError(t, err)
		it, err := l.Scan()
		require.NoError(t, err)
		got = append(got, string(strip(nil, &it)))
	}
	require.Equal(t, []string{`{}`, `{"metadata":{"uid":"u"}}`, `{}`}, got)
}

// TestItemsBehindARefusedOneAreStillRead: a refused item must not hide the
// items behind it.
func TestItemsBehindARefusedOneAreStillRead(t *testing.T) {
	l := wire.NewListReader(strings.NewReader(`{"items":[{"a":1},{"metadata":{"name":7}},17,{"b":2}]}`), wire.Limits{})
	var scans []bool
	for {
		_, err := l.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		_, err = l.Scan()
		scans = append(scans, err == nil)
	}
	require.Equal(t, []bool{true, false, false, true}, scans)

	f := wire.NewFrameReader(strings.NewReader(
		`{"type":"ADDED","object":{"metadata":{"uid":1}}}{"type":"ADDED","object":{}}`), wire.Limits{})
	for _, want := range []bool{false, true} {
		_, err := f.Next()
		require.NoError(t, err)
		_, err = f.Scan()
		require.Equal(t, want, err == nil)
	}
}

func TestWaitEndsWhenAFrameBegins(t *testing.T) {
	h := &hold{t: t, frames: [][]byte{frame(wire.Added, wiretest.Pod(1)), frame(wire.Added, wiretest.Pod(2))}}
	h.reader = wire.NewFrameReader(h, wire.Limits{})
	for i := 1; i <= 2; i++ {
		require.NoError(t, h.reader.Wait())
		require.NoError(t, h.reader.Wait(), "a frame has begun already")
		_, err := h.reader.Scan()
		require.Error(t, err, "waiting makes the last frame void")
		fr, err := h.reader.Next()
		require.NoError(t, err)
		require.Equal(t, string(wiretest.Pod(i)), string(fr.Object))
		_, err = h.reader.Scan()
		require.NoError(t, err)
	}
	require.Equal(t, io.EOF, h.reader.Wait())
	_, err := h.reader.Next()
	require.Equal(t, io.EOF, err)
	require.False(t, h.reader.HoldsBuffer())
}

func TestListReaderKeepsTheOtherMembers(t *testing.T) {
	const list = `{"kind":"L","metadata":{"continue":"c","x":[1]},"items":[{}],` +
		`"ex\u0074ra":{"a":"b"},"apiVersion":"v1"}`
	r := wire.NewListReader(strings.NewReader(list), wire.Limits{})
	r.KeepMembers()
	_, err := r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, `,"metadata":{"continue":"c","x":[1]},"extra":{"a":"b"}`, string(r.Members()))

	r = wire.NewListReader(strings.NewReader(`{"a":"`+strings.Repeat("x", wire.MaxKept)+`","items":[]}`), wire.Limits{})
	r.KeepMembers()
	_, err = r.Next()
	var limit *wire.LimitError
	require.ErrorAs(t, err, &limit)
}
