// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Listener is a Subject that delivers events.
type Listener interface {
	// Listen calls handle with the number of the cluster and each object of the
	// kind that has changed, from now on, in all clusters.
	Listen(ctx context.Context, k Kind, handle func(cluster int, o Object)) error
}

// Object is an object as its handlers get it.
type Object interface {
	GetNamespace() string
	GetName() string
	GetResourceVersion() string
}

// ErrNoEvents indicates that a Subject is no Listener.
var ErrNoEvents = errors.New("it has no handlers of its own")

// arrivals are the times at which versions arrived.
type arrivals struct {
	mu   sync.Mutex
	when map[string]time.Time
}

func (a *arrivals) note(resourceVersion string) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, again := a.when[resourceVersion]; !again {
		a.when[resourceVersion] = now
	}
}

// take returns what has arrived and begins again.
func (a *arrivals) take() map[string]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.when
	a.when = map[string]time.Time{}

	return taken
}

// events measures how much later events reach a handler than a watch that does
// nothing but read, on another connection, and what they cost. The first of
// Kinds is watched, in a fleet of one cluster.
func (t Task) events(ctx context.Context, open Open) (Figures, error) {
	control := Control{URL: t.Control}
	clusters, err := control.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	raw, handled := &arrivals{when: map[string]time.Time{}}, &arrivals{when: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	if err := readRaw(ctx, &reading, clusters[0], t.Kinds[0], raw); err != nil {
		return nil, err
	}
	f := Figures{}
	for _, rate := range t.Rates {
		cpu, _, err := t.churned(ctx, control, rate, raw)
		if err != nil {
			return nil, err
		}
		f[fmt.Sprintf("raw/cpu-%g", rate)] = cpu
	}

	s, err := open(context.WithoutCancel(ctx), clusters)
	if err != nil {
		return nil, err
	}
	listener, ok := s.(Listener)
	if !ok {
		return nil, errors.Join(ErrNoEvents, s.Stop())
	}
	if err := s.Watch(ctx, t.Kinds[:1]); err != nil {
		return nil, err
	}
	err = listener.Listen(ctx, t.Kinds[0], func(_ int, o Object) { handled.note(o.GetResourceVersion()) })
	if err != nil {
		return nil, err
	}
	for _, rate := range t.Rates {
		Settle()
		handled.take()
		cpu, seen, err := t.churned(ctx, control, rate, raw)
		if err != nil {
			return nil, err
		}
		delays := delaysOf(seen, handled.take())
		if len(delays) == 0 {
			return nil, errors.New("no event was delivered")
		}
		suffix := fmt.Sprintf("-%g", rate)
		f["cpu"+suffix] = cpu - f["raw/cpu"+suffix]
		f["p50"+suffix] = delays[len(delays)/2]
		f["p99"+suffix] = delays[len(delays)*99/100]
		f["delivered"+suffix] = float64(len(delays)) / float64(len(seen))
	}

	return f, s.Stop()
}

// settling is how long after the last change events may still arrive.
const settling = 3 * time.Second

// churned changes objects of the kind at the rate. It returns the CPU time per
// change and when the changes arrived at the reading watch.
func (t Task) churned(
	ctx context.Context, control Control, rate float64, raw *arrivals,
) (cpu float64, seen map[string]time.Time, err error) {
	raw.take()
	used := CPU()
	// The fleet changes one kind after the other.
	if err := control.Churn(ctx, rate*kindsOfFleet); err != nil {
		return 0, nil, err
	}
	time.Sleep(t.Rest)
	if err := control.Churn(ctx, 0); err != nil {
		return 0, nil, err
	}
	time.Sleep(settling)
	used = CPU() - used
	seen = raw.take()
	if len(seen) == 0 {
		return 0, nil, errors.New("no change arrived")
	}

	return used.Seconds() / float64(len(seen)), seen, nil
}

// kindsOfFleet is the number of kinds of a fleet's clusters.
const kindsOfFleet = 5

// delaysOf returns the sorted delays in seconds of what was handled.
func delaysOf(raw, handled map[string]time.Time) []float64 {
	var delays []float64
	for version, at := range handled {
		if first, ok := raw[version]; ok {
			delays = append(delays, at.Sub(first).Seconds())
		}
	}
	slices.Sort(delays)

	return delays
}

// readRaw opens a watch that notes versions and does nothing else.
func readRaw(ctx context.Context, reading *sync.WaitGroup, c Cluster, k Kind, a *arrivals) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}}
	path := "/api/" + k.Version
	if k.Group != "" {
		path = "/apis/" + k.Group + "/" + k.Version
	}
	url := c.Host + path + "/" + k.Resource + "?watch=true&resourceVersion=0"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.Join(errors.New(resp.Status), resp.Body.Close())
	}
	reading.Go(func() {
		defer client.CloseIdleConnections()
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewReaderSize(resp.Body, 1<<20)
		for {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				return // the context has ended
			}
			if version, ok := versionIn(line); ok {
				a.note(version)
			}
		}
	})

	return nil
}

// versionIn finds the resourceVersion of an object without decoding it.
func versionIn(line []byte) (string, bool) {
	_, rest, found := bytes.Cut(line, []byte(`"resourceVersion":"`))
	version, _, ends := bytes.Cut(rest, []byte(`"`))
	return string(version), found && ends
}
