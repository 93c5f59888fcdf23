// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restarting_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/persist"
	"github.com/fleetcache/fleetcache/clustercache/persist/bolt"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// victimVariable has what makes this program a victim: an operator in a process
// of its own, which may be killed.
const victimVariable = "FLEETCACHE_RESTARTING_VICTIM"

// victimTask is what a victim does.
type victimTask struct {
	Kubeconfigs map[string][]byte // by the name of the cluster
	Path        string            // of its file
	Interval    time.Duration
}

// victimReport is what a victim shows.
type victimReport struct {
	// Objects are the contents of all objects, by cluster, kind and name.
	Objects map[string]string
	// Restores and Lists are how many informers began with what was kept, and
	// how often objects were listed.
	Restores, Lists float64
	// Written is how much was written.
	Written float64
}

// victimKinds are those that a victim watches.
var victimKinds = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	corev1.SchemeGroupVersion.WithKind("Secret"),
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	corev1.SchemeGroupVersion.WithKind("Service"),
	appsv1.SchemeGroupVersion.WithKind("Deployment"),
}

// playVictim is the program of a victim. It reports once all is synced, and
// then for each line that it reads. SIGTERM, and the end of its input, end it.
func playVictim(given string) error {
	log.SetLogger(logr.Discard())
	var task victimTask
	if err := json.Unmarshal([]byte(given), &task); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	d := fleettest.NewDirectory()
	for name, kubeconfig := range task.Kubeconfigs {
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			return err
		}
		d.SetQuietly(fleettest.Key(name), config)
	}
	var damage error
	disk, err := bolt.Open(task.Path, bolt.Options{
		Later:    true,
		OnDamage: func(why error) { damage = why },
	})
	if err != nil {
		return err
	}
	if damage != nil {
		return damage
	}
	metrics := prometheus.NewRegistry()
	o := fleettest.Quick(d)
	o.Logger, o.MetricsRegisterer = logr.Discard(), metrics
	o.Persist = persist.Options{
		Store:          disk,
		Interval:       task.Interval,
		BytesPerSecond: -1,
		Secrets:        true,
	}
	cc, err := clustercache.New(o)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cc.Start(ctx) }()
	if err := watchAll(ctx, cc, task); err != nil {
		return err
	}
	go func() {
		lines := bufio.NewReader(os.Stdin)
		for {
			if err := report(cc, metrics, task); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			if _, err := lines.ReadString('\n'); err != nil {
				stop()
				return
			}
		}
	}()
	if err := <-ended; err != nil {
		return err
	}

	return disk.Close()
}

// watchAll watches all kinds in all clusters, and waits for them.
func watchAll(ctx context.Context, cc *clustercache.ClusterCache, task victimTask) error {
	var watches []*clustercache.Watch
	for name := range task.Kubeconfigs {
		if err := cc.Cluster(fleettest.Key(name)).Engage(); err != nil {
			return err
		}
		for _, gvk := range victimKinds {
			w, err := cc.Cluster(fleettest.Key(name)).Watch(ctx, clustercache.Kind(gvk))
			if err != nil {
				return err
			}
			watches = append(watches, w)
		}
	}
	for _, w := range watches {
		if err := w.WaitForSync(ctx); err != nil {
			return err
		}
	}
	return nil
}

// report prints what is shown.
func report(cc *clustercache.ClusterCache, metrics *prometheus.Registry, task victimTask) error {
	r := victimReport{Objects: map[string]string{}}
	for name := range task.Kubeconfigs {
		reader := cc.Cluster(fleettest.Key(name)).Reader()
		err := contents(context.Background(), r.Objects, name, reader, clustercache.CacheOnly)
		if err != nil {
			return err
		}
	}
	families, err := metrics.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "fleetcache_restores_total":
				r.Restores += m.GetCounter().GetValue()
			case "fleetcache_list_requests_total":
				r.Lists += m.GetCounter().GetValue()
			case "fleetcache_persist_written_bytes_total":
				r.Written += m.GetCounter().GetValue()
			}
		}
	}
	line, err := json.Marshal(r)
	fmt.Printf("%s\n", line)

	return err
}

// contents adds the contents of the objects that a reader lists.
func contents(
	ctx context.Context, out map[string]string, cluster string, r client.Reader, opts ...client.ListOption,
) error {
	for _, gvk := range victimKinds {
		l := fleettest.ListOf(gvk)
		if err := r.List(ctx, l, opts...); err != nil {
			return err
		}
		for _, o := range l.Items {
			o.SetManagedFields(nil)
			text, err := json.Marshal(o.Object)
			if err != nil {
				return err
			}
			out[strings.Join([]string{cluster, gvk.Kind, o.GetNamespace(), o.GetName()}, "/")] = string(text)
		}
	}
	return nil
}

// live returns the contents of all objects as the servers have them.
func live(t *testing.T, clusters []*testenv.Cluster) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, c := range clusters {
		require.NoError(t, contents(t.Context(), out, c.Name(), c.Client()))
	}
	return out
}

// victim is a running one.
type victim struct {
	t          *testing.T
	cmd        *exec.Cmd
	in         io.WriteCloser
	lines      *bufio.Scanner
	complaints strings.Builder
}

// startVictim starts a victim with the file at a path.
func startVictim(t *testing.T, clusters []*testenv.Cluster, path string) *victim {
	t.Helper()
	task := victimTask{
		Kubeconfigs: map[string][]byte{},
		Path:        path,
		Interval:    time.Second,
	}
	for _, c := range clusters {
		task.Kubeconfigs[c.Name()] = c.Kubeconfig()
	}
	given, err := json.Marshal(task)
	require.NoError(t, err)
	v := &victim{t: t, cmd: exec.Command(os.Args[0])}
	v.cmd.Env = append(os.Environ(), victimVariable+"="+string(given))
	v.cmd.Stderr = &v.complaints
	v.in, err = v.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := v.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, v.cmd.Start())
	v.lines = bufio.NewScanner(out)
	v.lines.Buffer(nil, 64<<20)

	return v
}

// next returns the next report; false if the victim has ended before.
func (v *victim) next() (r victimReport, ok bool) {
	v.t.Helper()
	return r, v.lines.Scan() && json.Unmarshal(v.lines.Bytes(), &r) == nil
}

// ask has the victim report.
func (v *victim) ask() victimReport {
	v.t.Helper()
	_, err := io.WriteString(v.in, "\n")
	require.NoError(v.t, err)
	r, ok := v.next()
	require.True(v.t, ok, v.complaints.String())

	return r
}

// wait waits for the end of the victim, and returns its error.
func (v *victim) wait() error {
	v.t.Helper()
	for v.lines.Scan() { // or Wait would close the pipe before the victim ends
		continue
	}
	err := v.cmd.Wait()
	require.Empty(v.t, v.complaints.String())

	return err
}

// kill ends the victim at once.
func (v *victim) kill() {
	v.t.Helper()
	require.NoError(v.t, v.cmd.Process.Kill())
	require.Error(v.t, v.wait())
}

// end ends the victim in the regular way.
func (v *victim) end() {
	v.t.Helper()
	require.NoError(v.t, v.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(v.t, v.wait())
}
