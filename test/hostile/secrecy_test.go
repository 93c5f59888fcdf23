// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// secrets are strings that must not appear in any output, each planted in one
// place.
type secrets struct {
	mu      sync.Mutex
	planted map[string]string // by the place, which each contains
	others  []string          // with other beginnings
}

// plant returns a new secret for a place.
func (s *secrets) plant(place string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.planted[place] == "" {
		s.planted[place] = fmt.Sprintf("Canary-%d-%s", len(s.planted), strings.ReplaceAll(place, " ", "-"))
	}
	return s.planted[place]
}

// beginnings are the possible beginnings of planted secrets, in clear text and
// in the usual encodings; base64 has three.
var beginnings = []string{"Canary", "Q2FuYXJ5", "DYW5hcnk", "NhbmFye", "43616e617279", "67 97 110 97 114 121",
	"0x43, 0x61, 0x6e, 0x61, 0x72, 0x79"}

// in returns the secrets that a text contains.
func (s *secrets) in(text string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, form := range append(slices.Clone(beginnings), s.others...) {
		if at := strings.Index(text, form); at >= 0 {
			out = append(out, fmt.Sprintf("...%q", text[max(0, at-300):min(len(text), at+100)]))
		}
	}
	return out
}

// outputs collect everything that is written while a test runs.
type outputs struct {
	mu  sync.Mutex
	log bytes.Buffer
	// errs are all texts of an error, by its origin.
	errs map[string]string
}

func (o *outputs) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.Write(p)
}

func (o *outputs) logger() logr.Logger {
	return funcr.New(func(prefix, args string) { _, _ = fmt.Fprintln(o, prefix, args) }, funcr.Options{Verbosity: 10})
}

// err records an error, in all forms in which an error is printed.
func (o *outputs) err(where string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.errs[where+" "+fmt.Sprintf("%T", err)] += fmt.Sprintf("%v\n%+v\n%#v\n%q\n%s\n", err, err, err, err, err)
	}
}

// redirectLogs redirects all logs of client-go and controller-runtime to the
// outputs.
func (o *outputs) redirectLogs(t *testing.T) {
	t.Helper()
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	require.NoError(t, flags.Set("v", "10"))
	require.NoError(t, flags.Set("logtostderr", "false"))
	require.NoError(t, flags.Set("alsologtostderr", "false"))
	require.NoError(t, flags.Set("stderrthreshold", "4"))
	klog.SetOutput(o)
	log.SetLogger(o.logger())
	t.Cleanup(func() {
		klog.Flush()
		klog.SetOutput(os.Stderr)
		require.NoError(t, flags.Set("v", "0"))
		require.NoError(t, flags.Set("logtostderr", "true"))
	})
}

// use performs every operation on a cluster, and records the results.
func (s *stage) use(t *testing.T, cc *clustercache.ClusterCache, name string) {
	t.Helper()
	k, where := fleettest.Key(name), "use of "+name+": "
	object := client.ObjectKey{Namespace: "default", Name: "one"}
	for mode := clustercache.PreferCache; mode <= clustercache.AutoWatch; mode++ {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		s.out.err(where+"get", cc.Cluster(k).Reader().Get(ctx, object, &corev1.ConfigMap{}, mode))
		s.out.err(where+"get partial", cc.Cluster(k).Reader().Get(ctx, object, clustercache.Kind(fleettest.ConfigMap),
			mode))
		s.out.err(where+"list", cc.Cluster(k).Reader().List(ctx, fleettest.ListOf(fleettest.ConfigMap), mode))
		cancel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	w, err := cc.Cluster(k).Watch(ctx, &corev1.ConfigMap{})
	require.NoError(t, err)
	s.out.err(where+"sync", w.WaitForSync(ctx))
	s.out.err(where+"watch status", w.Status().LastError)
	if c, err := cc.Cluster(k).Client(); err == nil {
		o := &corev1.ConfigMap{ObjectMeta: fleettest.ObjectMeta("one"),
			Data: map[string]string{"x": s.secrets.plant("what is written to " + name)}}
		s.out.err(where+"create", c.Create(ctx, o))
		s.out.err(where+"update", c.Update(ctx, o))
		s.out.err(where+"patch", c.Patch(ctx, o,
			client.MergeFrom(&corev1.ConfigMap{ObjectMeta: fleettest.ObjectMeta("one")})))
		s.out.err(where+"status", c.Status().Update(ctx, o))
		s.out.err(where+"subresource", c.SubResource("scale").Get(ctx, o, o.DeepCopy()))
		s.out.err(where+"delete", c.Delete(ctx, o))
		s.out.err(where+"delete all", c.DeleteAllOf(ctx, o, client.InNamespace("default")))
	} else {
		s.out.err(where+"client", err)
	}
	if m, err := cc.Cluster(k).RESTMapper(); err == nil {
		_, err = m.RESTMapping(fleettest.ConfigMap.GroupKind(), "v1")
		s.out.err(where+"mapping", err)
		_, err = m.ResourcesFor(fleettest.ConfigMap.GroupVersion().WithResource("configmaps"))
		s.out.err(where+"resources", err)
	}
	out := fmt.Sprintf("%+v\n%#v\n", w.Status(), w.Status())
	_, err = cc.Cluster(k).RESTConfig()
	s.out.err(where+"config", err)
	s.note(out)
}

func (s *stage) note(text string) { _, _ = fmt.Fprintln(s.out, text) }

func TestSecretsAndForeignTextsAreInNoOutput(t *testing.T) {
	s, victim := newStage(t)
	s.out.redirectLogs(t)
	canaryFile := s.broken(t)
	r, err := resolver.Secrets(s.hub.Client(),
		resolver.SecretOptions{HubOptions: resolver.HubOptions{Namespace: "fleet", Logger: s.out.logger()}})
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	o := fleettest.Brisk(r)
	o.Discover, o.Logger, o.Dial, o.MetricsRegisterer, o.RequestTimeout = true, s.out.logger(), s.dial, registry,
		2*time.Second
	o.Informers.MaxBackoff = time.Second
	cc := fleettest.Start(t, o)
	clusters := fleettest.Follow(t, cc)
	require.Eventually(t, func() bool {
		all := cc.Statuses()
		for _, st := range all {
			if st.LastError == nil && !st.Connected {
				return false
			}
		}
		return len(all) == len(s.names)
	}, fleettest.Patience, 50*time.Millisecond)

	var done sync.WaitGroup
	for _, name := range s.names {
		done.Go(func() { s.use(t, cc, name) })
	}
	done.Wait()
	for _, st := range cc.Statuses() {
		s.out.err("status of "+st.Cluster.Name, st.LastError)
		s.note(fmt.Sprintf("%+v\n%#v\n", st, st))
		text, err := json.Marshal(st)
		require.NoError(t, err)
		s.note(string(text))
		access, err := r.Resolve(t.Context(), st.Cluster)
		s.out.err("resolving "+st.Cluster.Name, err)
		s.note(fmt.Sprintf("%v %+v %#v %q %s", access, access, access, access, access))
		text, err = json.Marshal(access)
		require.NoError(t, err)
		s.note(string(text))
		switch name := st.Cluster.Name; {
		case strings.HasPrefix(name, "late-"), name == "json-200": // the latter's identity is checked last
		default:
			require.False(t, st.Connected, name)
		}
	}
	for len(clusters.Events) > 0 {
		e := <-clusters.Events
		text, err := json.Marshal(e)
		require.NoError(t, err)
		s.note(fmt.Sprintf("%+v %#v %s", e, e, text))
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(s.out, f)
		require.NoError(t, err)
	}
	for debug := range 3 {
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(s.out, debug))
	}
	klog.Flush()
	s.check(t, victim, canaryFile)
}

// check searches everything that was written.
func (s *stage) check(t *testing.T, victim *hostile, canaryFile string) {
	t.Helper()
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	require.Greater(t, len(s.out.errs), 500, "errors were looked at")
	texts := map[string]string{"logs, dumps and metrics": s.out.log.String()}
	maps.Copy(texts, s.out.errs)
	var leaks []string
	for where, text := range texts {
		for _, leak := range s.secrets.in(text) {
			leaks = append(leaks, where+" shows "+leak)
		}
		if n := strings.Count(text, "shown"); where != "logs, dumps and metrics" && n > 200 {
			leaks = append(leaks, fmt.Sprintf("%s repeats what a server wrote %d times", where, n))
		}
	}
	for where, text := range s.out.errs {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "2026-01-01 INFO forged") ||
				strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
				leaks = append(leaks, where+" shows what does not print: "+
					fmt.Sprintf("%q", line[:min(len(line), 300)]))
				break
			}
		}
	}
	require.Empty(t, leaks[:min(len(leaks), 20)])

	require.NoFileExists(t, canaryFile)
	victim.mu.Lock()
	defer victim.mu.Unlock()
	require.Empty(t, victim.sent, "a redirect was followed")
	ours := map[string]bool{}
	for name, h := range s.servers {
		ours[h.Listener.Addr().String()] = true
		h.mu.Lock()
		require.NotEmpty(t, h.sent, name)
		for _, sent := range h.sent {
			require.True(t, sent == "Bearer "+s.tokens[name] || sent == "" && name == "html-401",
				"%s was sent somebody else's credential", name)
		}
		h.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for address := range s.dialed {
		require.True(t, ours[address], "%s was dialled", address)
	}
}
