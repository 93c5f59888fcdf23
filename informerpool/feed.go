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

// run goes from attempt to attempt until ctx ends. It is where the goroutines of idle informers sit, in the follow at the
// bottom of an attempt, so what is below it is kept shallow: a fleet has 100,000 of these stacks.
func (f *feed) run(ctx context.Context) {
	f.backoff.limit = f.options.MaxBackoff
	for ctx.Err() == nil {
		wait := f.attemptOnce(ctx)
		if ctx.Err() == nil && wait > 0 && sleep(ctx, wait, f.wake) {
			f.backoff.reset()
		}
	}
}

// attemptOnce makes one attempt: it waits for the cluster, lists or resumes, and follows the changes until something ends
// that. It returns how long to wait before the next.
func (f *feed) attemptOnce(ctx context.Context) time.Duration {
	ctx, forgot := f.begin(ctx)
	if forgot {
		f.known, f.resume, f.replace, f.misses = "", "", false, 0
	}
	s, err := f.connect(ctx)
	began := time.Now()
	if err == nil {
		err = f.follow(s)
		s.close()
	}
	return f.conclude(ctx, began, err)
}

// conclude notes how an attempt ended. A nil error is the regular end of a watch.
func (f *feed) conclude(ctx context.Context, began time.Time, err error) time.Duration {
	cause := context.Cause(ctx)
	f.end()
	if errors.Is(cause, errEvicted) {
		f.backoff.reset()
		return 0
	}
	err = f.checkGone(f.checkHistory(err))
	if cause != nil {
		return 0 // the informer's end
	}
	if err != nil && f.fail(err) {
		f.options.Logger.Info("Informer interrupted", "informer", f.key.String(), "error", err.Error())
	}
	if errors.Is(err, ErrEpochChanged) {
		return 0 // Ready knows the new one, or waits for it
	}
	return f.backoff.after(time.Since(began), err)
}

// connect waits for the cluster and returns a live stream that continues the store.
func (f *feed) connect(ctx context.Context) (*stream, error) {
	epoch, err := f.pool.options.Source.Ready(ctx, f.key.Cluster)
	if err != nil {
		return nil, err
	}
	if epoch != f.known {
		f.replace = f.replace || f.hasSynced()
		f.known, f.resume = epoch, ""
	}
	if f.resume == "" {
		return f.relist(ctx)
	}
	if err := f.guard(ctx); err != nil {
		return nil, err
	}
	f.counters.resumes.inc()
	return f.watch(ctx)
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

// watch opens the live stream from the resourceVersion that was reached.
func (f *feed) watch(ctx context.Context) (*stream, error) {
	opts := f.listOptions()
	opts.ResourceVersion = f.resume
	opts.AllowWatchBookmarks = true
	opts.TimeoutSeconds = f.watchSeconds()
	f.counters.watches.inc()
	s, err := f.open(ctx, opts)
	if err == nil {
		f.advance(f.resume)
	}
	return s, err
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
			err = page.next()
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
