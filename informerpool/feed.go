// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fleetcache/fleetcache/internal/packed"
)

// feed keeps one informer's store equal to the server: list, watch, resume. It is one goroutine, and it is not built on
// client-go's Reflector because that one cannot be stopped while it waits for a server that refuses connections, starts
// over when a connection breaks, and never notices a stream that stalls or a history that was rolled back.
type feed struct {
	*entry
	options *Options

	backoff backoff
	known   Epoch        // the epoch resume continues in
	resume  string       // the resourceVersion to continue at; empty asks for a list
	replace bool         // the next list is of a new history: versions are not comparable with those of the store
	kind    *packed.Kind // learned from the first object
	misses  int          // lists in a row that said the resource does not exist

	noStreaming bool // the server does not stream lists
}

// confirmedGone is how many lists in a row must say that a resource does not exist before its objects are taken away.
const confirmedGone = 2

// run goes from attempt to attempt until ctx ends.
func (f *feed) run(ctx context.Context) {
	f.backoff.limit = f.options.MaxBackoff
	for ctx.Err() == nil {
		attempt, forgot := f.begin(ctx)
		if forgot {
			f.known, f.resume, f.replace, f.misses = "", "", false, 0
		}
		began := time.Now()
		err := f.attemptOnce(attempt, &began)
		cause := context.Cause(attempt)
		f.end()
		if ctx.Err() != nil {
			return
		}
		if errors.Is(cause, errEvicted) {
			f.backoff.reset()
			continue
		}
		if err != nil && f.fail(err) {
			f.options.Logger.Info("Informer interrupted", "informer", f.key.String(), "error", err.Error())
		}
		if errors.Is(err, ErrEpochChanged) {
			continue // Ready knows the new one, or waits for it
		}
		if sleep(ctx, f.backoff.after(time.Since(began), err), f.wake) {
			f.backoff.reset()
		}
	}
}

// attemptOnce waits for the cluster, then lists and watches, or resumes, until something ends it. A nil error is the regular
// end of a watch. began is when the cluster was ready.
func (f *feed) attemptOnce(ctx context.Context, began *time.Time) error {
	epoch, err := f.pool.options.Source.Ready(ctx, f.key.Cluster)
	if err != nil {
		return err
	}
	*began = time.Now()
	if epoch != f.known {
		f.replace = f.replace || f.hasSynced()
		f.known, f.resume = epoch, ""
	}
	if f.resume != "" {
		return f.resumeWatch(ctx)
	}
	return f.relist(ctx)
}

// resumeWatch continues where the last watch ended, unless the server's history does not reach there any more.
func (f *feed) resumeWatch(ctx context.Context) error {
	if err := f.guard(ctx); err != nil {
		return f.checkHistory(err)
	}
	f.counters.resumes.Add(1)
	return f.checkHistory(f.watch(ctx))
}

// checkHistory makes the next attempt a list where an error says that resuming is over.
func (f *feed) checkHistory(err error) error {
	switch {
	case err == nil:
	case errors.Is(err, ErrHistory):
		f.resume, f.replace = "", true
		if f.options.OnRollback != nil {
			f.options.OnRollback(f.key)
		}
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		f.resume = ""
		f.backoff.reset()
	case apierrors.IsNotFound(err):
		f.resume = "" // a list tells whether the resource itself is gone
	}
	return err
}

// watch follows the live stream from the resourceVersion that was reached.
func (f *feed) watch(ctx context.Context) error {
	opts := f.listOptions()
	opts.ResourceVersion = f.resume
	opts.AllowWatchBookmarks = true
	opts.TimeoutSeconds = f.watchSeconds()
	f.counters.watches.Add(1)
	s, err := f.open(ctx, opts)
	if err != nil {
		return err
	}
	defer s.close()
	f.advance(f.resume)
	return f.follow(s)
}

// guard finds out whether the server's history reaches what we saw. A server whose etcd was restored from an older
// snapshot takes a resourceVersion from the future and then is silent until its own history gets there, for ever in practice.
func (f *feed) guard(ctx context.Context) error {
	server, err := f.currentVersion(ctx)
	if err != nil {
		return err
	}
	if order, err := resourceversion.CompareResourceVersion(server, f.resume); err == nil && order < 0 {
		return fmt.Errorf("%s: %w (server is at %s, cache at %s)", f.key, ErrHistory, server, f.resume)
	}
	return nil
}

// currentVersion asks the server for the newest resourceVersion of the resource. Where lists are streamed it asks for the
// stream of a name that does not exist: the bookmark that ends it is the answer, and it is no LIST.
func (f *feed) currentVersion(ctx context.Context) (string, error) {
	if f.paged() {
		page, err := f.openPage(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return "", err
		}
		defer page.close()
		for err == nil {
			_, err = page.next()
		}
		if !errors.Is(err, io.EOF) {
			return "", err
		}
		return page.header().ResourceVersion, nil
	}
	opts := streamOptions(metav1.ListOptions{FieldSelector: "metadata.name=fleetcache-history"})
	opts.TimeoutSeconds = new(int64(30))
	s, err := f.open(ctx, opts)
	if err != nil {
		return "", err
	}
	defer s.close()
	for {
		frame, err := s.next()
		if err != nil {
			return "", eofIsUnexpected(err)
		}
		if end, rv, err := initialEventsEnd(frame); end || err != nil {
			return rv, err
		}
	}
}

// eofIsUnexpected tells the end of a stream from a clean one where more was due.
func eofIsUnexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (f *feed) listOptions() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: f.key.LabelSelector, FieldSelector: f.key.FieldSelector}
}

// streamOptions make a watch begin with the current objects. Bookmarks must be asked for with them: without, the server
// never says where the initial ones end.
func streamOptions(o metav1.ListOptions) metav1.ListOptions {
	o.SendInitialEvents = new(true)
	o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	o.AllowWatchBookmarks = true
	return o
}

func (f *feed) watchSeconds() *int64 {
	t := f.options.WatchTimeout
	return new(int64((2*t/3 + rand.N(2*t/3)) / time.Second))
}

func (f *feed) hasSynced() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.synced
}
