// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"syscall"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

// share begins with widgets that are there already.
func (d *demonstration) share(ctx context.Context) error {
	replicas := []string{"replica-0", "replica-1", "replica-2"}
	if err := d.start(replicas...); err != nil {
		return err
	}
	took, err := d.Await(ctx, spread, "each replica has two clusters", func() error { return d.shared(replicas...) })
	if err != nil {
		return err
	}
	d.OK("each replica has two clusters, %s after they were started", story.Brief(took))
	if err := d.settled(ctx, story.Patience); err != nil {
		return err
	}
	d.who()
	begin := time.Now()
	if err := d.change(ctx); err != nil {
		return err
	}
	return d.reconciled(ctx, begin)
}

// killOne has all widgets change after the replica is gone.
func (d *demonstration) killOne(ctx context.Context) error {
	const name = "replica-1"
	before := d.record.owners()
	begin := time.Now()
	d.replicas[name].kill()
	delete(d.replicas, name)
	d.record.gone(name)
	if err := d.change(ctx); err != nil {
		return err
	}
	if err := d.takenOver(ctx, begin, before, name); err != nil {
		return err
	}
	return d.reconciled(ctx, begin)
}

// takenOver waits until the clusters of a replica have other owners, and
// expects that no others have.
func (d *demonstration) takenOver(
	ctx context.Context, begin time.Time, before map[string]string, name string,
) error {
	within := time.Until(begin.Add(takeover))
	_, err := d.Await(ctx, within, "all clusters owned again", func() error { return d.owned(name) })
	if err != nil {
		return err
	}
	d.OK("all clusters are owned again after %s, of at most %s", story.Brief(time.Since(begin)), takeover)
	d.who()
	n := moved(before, d.record.owners())
	return d.Expect(n == owns(before, name), "only its clusters moved", fmt.Sprintf("%d of %d", n, len(clusterNames)))
}

// join adds a replica.
func (d *demonstration) join(ctx context.Context) error {
	before := d.record.owners()
	if err := d.start("replica-3"); err != nil {
		return err
	}
	took, err := d.Await(ctx, spread, "each replica has two clusters", func() error {
		return d.shared("replica-0", "replica-2", "replica-3")
	})
	if err != nil {
		return err
	}
	d.OK("each replica has two clusters, %s after it was started", story.Brief(took))
	d.who()
	n := moved(before, d.record.owners())
	if err := d.Expect(n == 2, "only its share moved", fmt.Sprintf("%d of %d", n, len(clusterNames))); err != nil {
		return err
	}
	begin := time.Now()
	if err := d.change(ctx); err != nil {
		return err
	}
	return d.reconciled(ctx, begin)
}

// stopOne stops a replica in the midst of its work, and continues it when all
// widgets have just changed again.
func (d *demonstration) stopOne(ctx context.Context) error {
	const name = "replica-2"
	before := d.record.owners()
	begin := time.Now()
	if err := d.interrupted(ctx, name, syscall.SIGSTOP); err != nil {
		return err
	}
	halt := time.Now()
	if err := d.takenOver(ctx, halt, before, name); err != nil {
		return err
	}
	if err := d.reconciled(ctx, begin); err != nil {
		return err
	}
	if err := story.Sleep(ctx, time.Until(halt.Add(stopped))); err != nil {
		return err
	}

	begin = time.Now()
	if err := d.change(ctx); err != nil {
		return err
	}
	if err := d.replicas[name].signal(syscall.SIGCONT); err != nil {
		return err
	}
	d.Say("it goes on, while all widgets have changed")
	if err := d.reconciled(ctx, begin); err != nil {
		return err
	}
	if _, err := d.Await(ctx, spread, "each replica has two clusters", func() error {
		return d.shared("replica-0", "replica-2", "replica-3")
	}); err != nil {
		return err
	}
	d.Say("it has its share again; the library refused to send %d writes that it had begun", d.record.refusals(name))
	return d.ignored(name, halt)
}

// interrupted changes all widgets, and sends a signal to a replica while it
// works on its share of them.
func (d *demonstration) interrupted(ctx context.Context, name string, s syscall.Signal) error {
	if err := d.change(ctx); err != nil {
		return err
	}
	if err := story.Sleep(ctx, work/3); err != nil {
		return err
	}
	return d.replicas[name].signal(s)
}

// ignored expects that a replica wrote nothing after others took over from it.
func (d *demonstration) ignored(name string, since time.Time) error {
	all, err := d.written()
	if err != nil {
		return err
	}
	wrong := intruders(between(all, since, time.Now()), d.record.gains())
	return d.Expect(len(wrong) == 0, "no write of "+name+" arrived after another replica took over",
		fmt.Sprintf("%d did", len(wrong)))
}

// refuse has renewals refused as if the Leases of the replicas did not exist, or
// had changed. Neither is so, and the leases last for longer.
func (d *demonstration) refuse(ctx context.Context) error {
	for _, code := range []int{http.StatusNotFound, http.StatusConflict} {
		name := fmt.Sprintf("answers with status %d", code)
		if err := d.endured(ctx, trouble{refuse: code}, refusing, name); err != nil {
			return err
		}
	}
	return nil
}

// slowHub has writes to the hub take long, of which each renews a lease from
// when it was sent.
func (d *demonstration) slowHub(ctx context.Context) error {
	return d.endured(ctx, trouble{delay: slowness}, slow, "writes that took "+slowness.String())
}

// endured changes all widgets while the way to the hub is in trouble, and expects
// that this costs no cluster its owner.
func (d *demonstration) endured(ctx context.Context, t trouble, lasts time.Duration, name string) error {
	// Each replica renews its lease first: troubles that follow one another at
	// once would last longer than that.
	if err := story.Sleep(ctx, 2*sharding.DefaultRenewInterval); err != nil {
		return err
	}
	before, gains := d.record.owners(), len(d.record.gains())
	begin := time.Now()
	d.gate.set(t)
	if err := d.change(ctx); err != nil {
		return err
	}
	if err := story.Sleep(ctx, time.Until(begin.Add(lasts))); err != nil {
		return err
	}
	met, end := d.gate.set(trouble{}), time.Now()
	if err := d.Expect(met >= len(d.replicas), "each replica has met the trouble",
		fmt.Sprintf("%d %s", met, name)); err != nil {
		return err
	}
	if _, err := d.Await(ctx, takeover, "all clusters owned", func() error { return d.owned() }); err != nil {
		return err
	}
	d.OK("all clusters are owned %s after the trouble, of at most %s", story.Brief(time.Since(end)), takeover)
	if err := d.reconciled(ctx, begin); err != nil {
		return err
	}
	n := len(d.record.gains()) - gains
	return d.Expect(n == 0 && moved(before, d.record.owners()) == 0, "no cluster was lost meanwhile",
		fmt.Sprintf("%d times a cluster got an owner", n))
}

// drainOne asks a replica to end in the midst of its work.
func (d *demonstration) drainOne(ctx context.Context) error {
	const name = "replica-0"
	before := d.record.owners()
	changed := time.Now()
	if err := d.interrupted(ctx, name, syscall.SIGTERM); err != nil {
		return err
	}
	p := d.replicas[name]
	delete(d.replicas, name)
	defer p.kill()
	took, err := d.Await(ctx, takeover, "all clusters owned by others", func() error { return d.owned(name) })
	if err != nil {
		return err
	}
	drain := d.record.drained(name)
	if err := d.Expect(took <= handOver+drain, "all clusters are owned by others after a second and the drain",
		fmt.Sprintf("after %s, of which the drain took %s", story.Brief(took), story.Brief(drain))); err != nil {
		return err
	}
	d.record.gone(name)
	d.who()
	if err := d.ended(p); err != nil {
		return err
	}
	n, of := moved(before, d.record.owners()), owns(before, name)
	if err := d.Expect(n == of, "only its clusters moved", fmt.Sprintf("%d of %d", n, len(clusterNames))); err != nil {
		return err
	}
	if err := d.settled(ctx, story.Patience); err != nil {
		return err
	}
	all, err := d.written()
	if err != nil {
		return err
	}
	d.OK("no change was lost, and none was reconciled twice (%d changes, %d writes have arrived)",
		len(d.widgets()), len(between(all, changed, time.Now())))
	return nil
}

// loseHub stops the hub's API server.
func (d *demonstration) loseHub(ctx context.Context) error {
	before := d.record.owners()
	begin := time.Now()
	if err := d.Hub.StopAPIServer(ctx); err != nil {
		return err
	}
	if _, err := d.Await(ctx, expiry+story.Patience, "no cluster owned", func() error {
		if n := len(d.record.owners()); n > 0 {
			return fmt.Errorf("%d are", n)
		}
		return d.alive()
	}); err != nil {
		return err
	}
	silence := time.Now()
	d.OK("no replica owns anything, %s after the hub was stopped", story.Brief(silence.Sub(begin)))
	if err := d.change(ctx); err != nil {
		return err
	}
	took, err := d.Await(ctx, story.Patience, "reads go on", func() error { return d.cached(d.record.reads()) })
	if err != nil {
		return err
	}
	d.OK("reads go on: the caches have all changes after %s", story.Brief(took))
	if err := story.Sleep(ctx, time.Until(begin.Add(d.away))); err != nil {
		return err
	}
	all, err := d.written()
	if err != nil {
		return err
	}
	n := len(between(all, silence, time.Now()))
	if err := d.Expect(n == 0, "no replica writes", fmt.Sprintf("%d writes in %s", n,
		story.Brief(time.Since(silence)))); err != nil {
		return err
	}
	return d.findHub(ctx, before)
}

// findHub starts the hub's API server again.
func (d *demonstration) findHub(ctx context.Context, before map[string]string) error {
	begin := time.Now()
	if err := d.Hub.StartAPIServer(ctx); err != nil {
		return err
	}
	_, err := d.Await(ctx, takeover, "the same owners as before", func() error {
		if err := d.owned(); err != nil {
			return err
		}
		if !maps.Equal(before, d.record.owners()) {
			return errors.New("clusters have moved")
		}
		return nil
	})
	if err != nil {
		return err
	}
	took := time.Since(begin)
	d.OK("all owners are as before, %s after the hub was started", story.Brief(took))
	d.who()
	return d.reconciled(ctx, begin)
}

// owns returns how many clusters a replica owns.
func owns(owners map[string]string, replica string) int {
	n := 0
	for _, owner := range owners {
		if owner == replica {
			n++
		}
	}
	return n
}
