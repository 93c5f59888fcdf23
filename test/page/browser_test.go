// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

//go:build chromium

package page_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var chromium = flag.String("chromium", "chromium", "the browser: a name in PATH, or a path")

// patience bounds the life of a browser, and with it each wait for an answer.
const patience = 4 * time.Minute

// browser is a headless Chromium with one tab. It speaks the DevTools protocol
// over two pipes: a zero byte ends each message.
type browser struct {
	t       *testing.T
	in      *os.File
	out     *bufio.Reader
	session string
	sent    int
	seen    map[string]int // events by method
}

// message is one of the DevTools protocol.
type message struct {
	ID        int             `json:"id,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

// launch starts a browser, which ends with the test.
func launch(t *testing.T) *browser {
	t.Helper()
	theirs, in, err := os.Pipe()
	require.NoError(t, err)
	out, ours, err := os.Pipe()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	cmd := exec.CommandContext(ctx, *chromium, "--headless=new", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe",
		"--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, ours}
	require.NoError(t, cmd.Start(), "-chromium names the browser")
	require.NoError(t, theirs.Close())
	require.NoError(t, ours.Close())
	b := &browser{
		t:    t,
		in:   in,
		out:  bufio.NewReader(out),
		seen: map[string]int{},
	}
	t.Cleanup(func() {
		b.call("Browser.close", nil, nil)
		_ = cmd.Wait() // before its directory is removed
		cancel()
		require.NoError(t, in.Close())
		require.NoError(t, out.Close())
	})

	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.call("Page.enable", nil, nil)

	return b
}

// call sends a command, and reads messages until it is answered.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.sent++
	text, err := json.Marshal(message{
		ID:        b.sent,
		Method:    method,
		Params:    params,
		SessionID: b.session,
	})
	require.NoError(b.t, err)
	_, err = b.in.Write(append(text, 0))
	require.NoError(b.t, err)
	for {
		m := b.read()
		if m.ID != b.sent {
			continue
		}
		require.Empty(b.t, string(m.Error), method)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(m.Result, result))
		}
		return
	}
}

// read reads one message.
func (b *browser) read() (m message) {
	b.t.Helper()
	text, err := b.out.ReadBytes(0)
	require.NoError(b.t, err, "the browser ended")
	require.NoError(b.t, json.Unmarshal(bytes.TrimRight(text, "\x00"), &m))
	b.seen[m.Method]++
	return m
}

// loaded returns when a page has been loaded because of act.
func (b *browser) loaded(act func()) {
	b.t.Helper()
	const event = "Page.loadEventFired"
	before := b.seen[event]
	act()
	for b.seen[event] == before {
		b.read()
	}
}

// open loads a page.
func (b *browser) open(url string) {
	b.t.Helper()
	b.loaded(func() { b.call("Page.navigate", map[string]any{"url": url}, nil) })
}

// evaluate stores the value of an expression of JavaScript.
func (b *browser) evaluate(expression string, value any) {
	b.t.Helper()
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &out)
	require.Empty(b.t, string(out.ExceptionDetails), expression)
	if value != nil {
		require.NoError(b.t, json.Unmarshal(out.Result.Value, value), expression)
	}
}

// text returns the text that the page shows.
func (b *browser) text() (text string) {
	b.t.Helper()
	b.evaluate("document.body.innerText", &text)
	return text
}

// screen is a kind of display.
type screen struct {
	name          string
	width, height int
	mobile        bool
}

var (
	desktop = screen{name: "desktop", width: 1280, height: 560}
	phone   = screen{name: "phone", width: 390, height: 844, mobile: true}
)

// show uses a display, with light or dark colours.
func (b *browser) show(s screen, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width":             s.width,
		"height":            s.height,
		"deviceScaleFactor": 1,
		"mobile":            s.mobile,
	}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// screenshot returns what the display shows, as a PNG.
func (b *browser) screenshot() []byte {
	b.t.Helper()
	var out struct{ Data []byte }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}, &out)
	return out.Data
}
