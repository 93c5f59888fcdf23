// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// replace writes a file and puts it in place by a rename.
func replace(t testing.TB, path string, data []byte) {
	t.Helper()
	write(t, path+".tmp", data)
	require.NoError(t, os.Rename(path+".tmp", path))
}

func files(t testing.TB, options resolver.FileOptions, paths ...string) *resolver.FileResolver {
	t.Helper()
	r, err := resolver.Files(options, paths...)
	require.NoError(t, err)
	return r
}

func TestFilesAreNotMerged(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "sub", "two")
	write(t, one, resolvertest.TokenConfig("one"))
	write(t, two, []byte(`
contexts:
- {name: c, context: {cluster: c, user: u}}
- {name: d, context: {cluster: c, user: missing}}
- {name: '', context: {cluster: c}}
clusters: [{name: c, cluster: {server: "https://two.example"}}]
users: [{name: u, user: {token: two}}]
`))
	write(t, filepath.Join(dir, ".hidden"), resolvertest.TokenConfig("hidden"))
	write(t, filepath.Join(dir, "README"), []byte("this is: [no kubeconfig"))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	r := files(t, resolver.FileOptions{}, dir, two, filepath.Join(dir, "missing"))
	clusters, err := r.Clusters(t.Context())
	require.NoError(t, err)
	readme, missing := filepath.Join(dir, "README"), filepath.Join(dir, "missing")
	require.Equal(t, []resolver.Cluster{
		resolvertest.Named(`"` + two + `+"`),
		resolvertest.Named(readme),
		resolvertest.Named(missing),
		resolvertest.Named(one + "+c"),
		resolvertest.Named(two + "+c"),
		resolvertest.Named(two + "+d"),
	}, clusters)
	require.Equal(t, "one", resolvertest.Token(t, r, resolvertest.Named(one+"+c")))
	require.Equal(t, "two", resolvertest.Token(t, r, resolvertest.Named(two+"+c")))
	_, err = r.Resolve(t.Context(), resolvertest.Named(two+"+d"))
	require.EqualError(t, err, "cluster /"+two+"+d: File "+two+
		": invalid kubeconfig: context.user is not in the list of users")
	_, err = r.Resolve(t.Context(), resolvertest.Named("other"))
	require.ErrorIs(t, err, resolver.ErrClusterNotFound)
}

// TestHazardOwnFileIsLargerThanAStrangersMayBe: the files of the person who
// runs the program have dozens of contexts with certificates. The error about
// another file names the option that permits it.
func TestHazardOwnFileIsLargerThanAStrangersMayBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	content := resolvertest.TokenConfig("one")
	for len(content) <= resolver.DefaultMaxBytes {
		content = append(content, "# another context of the person's\n"...)
	}
	write(t, path, content)
	own := files(t, resolver.FileOptions{Own: true, ID: resolver.ByContext}, path)
	require.Equal(t, "one", resolvertest.Token(t, own, resolvertest.Named("c")))

	larger := files(t, resolver.FileOptions{MaxBytes: len(content), ID: resolver.ByContext}, path)
	require.Equal(t, "one", resolvertest.Token(t, larger, resolvertest.Named("c")))

	for _, limited := range []resolver.FileOptions{{}, {Own: true, MaxBytes: len(content) - 1}} {
		_, err := files(t, limited, path).Resolve(t.Context(), resolvertest.Named(path))
		require.ErrorContains(t, err, "MaxBytes")
	}
	_, err := resolver.Kubeconfig(content, resolver.KubeconfigOptions{})
	require.ErrorContains(t, err, "MaxBytes")
}

// TestHazardMissingFileIsTakenForASecret: the error is about a file, and names
// the cluster as logs do.
func TestHazardMissingFileIsTakenForASecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing")
	r, err := resolver.Files(resolver.FileOptions{}, path)
	require.NoError(t, err)
	cluster := resolvertest.Named(path)
	_, err = r.Resolve(t.Context(), cluster)
	require.EqualError(t, err, "cluster "+clustername.Of(cluster)+": File "+path+": file does not exist")
	require.ErrorIs(t, err, resolver.ErrSecretNotFound)
	require.ErrorIs(t, err, resolver.ErrNoAccess)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestHazardFilesThatCannotBeReadAreSeen checks that a mistyped path or a
// broken file is a cluster with an error, and that the list returns an error if
// no path at all is readable.
func TestHazardFilesThatCannotBeReadAreSeen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	typed := func(wanted error) func(error) bool { return func(err error) bool { return errors.Is(err, wanted) } }
	broken := func(err error) bool {
		_, ok := errors.AsType[*resolver.KubeconfigError](err)
		return ok
	}
	noContext := []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://c.example'}}]\n")
	for name, tc := range map[string]struct {
		content []byte
		is      func(error) bool
	}{
		"missing":      {nil, typed(fs.ErrNotExist)},
		"empty":        {[]byte{}, broken},
		"white space":  {[]byte("\n\n"), broken},
		"broken":       {[]byte("half of a kubeconfi"), broken},
		"binary":       {[]byte("\x00\xff"), broken},
		"another kind": {[]byte("apiVersion: v1\nkind: Secret\n"), func(error) bool { return true }},
		"no context":   {noContext, broken},
		"not YAML":     {[]byte("a: b: c"), broken},
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(path)
			if tc.content != nil {
				write(t, path, tc.content)
			}
			given := []string{path}
			if tc.content != nil {
				given = append(given, dir)
			}
			for _, given := range given {
				r := files(t, resolver.FileOptions{}, given)
				_, err := r.Clusters(t.Context())
				require.ErrorContains(t, err, path)
				require.True(t, tc.is(err), "%v", err)
				_, err = r.Resolve(t.Context(), resolvertest.Named(path))
				described, ok := errors.AsType[*resolver.AccessError](err)
				require.True(t, ok)
				require.Equal(t, resolver.ObjectRef{Kind: "File", Name: path}, described.Ref)
				require.True(t, tc.is(err), "%v", err)
				_, err = r.Resolve(t.Context(), resolvertest.Named(path+"+c"))
				require.True(t, tc.is(err), "it may be in there: %v", err)
				require.NotErrorIs(t, err, resolver.ErrClusterNotFound)
			}

			// A good file beside it keeps working, and the bad one is in the
			// list.
			good := filepath.Join(t.TempDir(), "good")
			write(t, good, resolvertest.TokenConfig("one"))
			r := files(t, resolver.FileOptions{}, path, good)
			clusters, err := r.Clusters(t.Context())
			require.NoError(t, err)
			require.Equal(t, []resolver.Cluster{resolvertest.Named(path), resolvertest.Named(good + "+c")}, clusters)
			require.Equal(t, "one", resolvertest.Token(t, r, resolvertest.Named(good+"+c")))

			// The file appears, and disappears again.
			write(t, path, resolvertest.TokenConfig("two"))
			clusters, err = r.Clusters(t.Context())
			require.NoError(t, err)
			require.Equal(t, []resolver.Cluster{resolvertest.Named(path + "+c"),
				resolvertest.Named(good + "+c")}, clusters)
			require.NoError(t, os.Remove(path))
			clusters, err = r.Clusters(t.Context())
			require.NoError(t, err)
			require.Equal(t, []resolver.Cluster{resolvertest.Named(good + "+c")}, clusters, "it was deleted")
		})
	}
	_, err := resolver.Files(resolver.FileOptions{}, "")
	require.ErrorContains(t, err, "empty path")
	clusters, err := files(t, resolver.FileOptions{}, t.TempDir()).Clusters(t.Context())
	require.NoError(t, err, "an empty directory is no mistake")
	require.Empty(t, clusters)
	_, err = files(t, resolver.FileOptions{}, filepath.Join(dir, "*.yaml")).Clusters(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestHazardNamesOfContextsAreText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, []byte("contexts: [{name: \"a\\nb\", context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: 'https://c.example'}}]\nusers: [{name: u, user: {token: t}}]\n"))
	r := files(t, resolver.FileOptions{}, path)
	clusters, err := r.Clusters(t.Context())
	require.NoError(t, err)
	require.Equal(t, []resolver.Cluster{resolvertest.Named(`"` + path + `+a\nb"`)}, clusters)
	_, err = r.Resolve(t.Context(), clusters[0])
	require.ErrorContains(t, err, "context.name has control characters")
}

func TestFilesThatDescribeOneClusterAreAnError(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"one", "two", "three"} {
		write(t, filepath.Join(dir, name), resolvertest.TokenConfig(name))
	}
	r := files(t, resolver.FileOptions{ID: func(path, context string) (resolver.Cluster, bool) {
		return resolvertest.Named(context), filepath.Base(path) != "three"
	}}, dir)
	_, err := r.Resolve(t.Context(), resolvertest.Named("c"))
	require.ErrorContains(t, err, "is one of several that describe this cluster")
	require.NoError(t, os.Remove(filepath.Join(dir, "one")))
	require.Equal(t, "two", resolvertest.Token(t, r, resolvertest.Named("c")))
}

func TestFileReferencesAreReadOnlyBelowThePermittedDirectory(t *testing.T) {
	dir := t.TempDir()
	allowed, outside := filepath.Join(dir, "allowed"), filepath.Join(dir, "outside")
	who := resolvertest.Identities()[0]
	write(t, filepath.Join(outside, "token"), []byte(resolvertest.CanaryToken))
	write(t, filepath.Join(allowed, "token"), []byte("inside\n"))
	write(t, filepath.Join(allowed, "cert"), who.Cert)
	write(t, filepath.Join(allowed, "key"), who.Key)
	require.NoError(t, os.Symlink(filepath.Join(outside, "token"), filepath.Join(allowed, "link")))
	require.NoError(t, os.Symlink("../outside/token", filepath.Join(allowed, "relative-link")))
	require.NoError(t, os.Symlink("token", filepath.Join(allowed, "good-link")))
	require.NoError(t, os.Symlink(outside, filepath.Join(allowed, "dir")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(allowed, "pipe"), 0o600))
	write(t, filepath.Join(allowed, "big"), make([]byte, resolver.DefaultMaxBytes+1))
	config := filepath.Join(allowed, "config")
	r := files(t, resolver.FileOptions{Allow: resolver.Allow{Files: allowed}}, config)
	read := func(user string) (resolver.Access, error) {
		write(t, config, resolvertest.Kubeconfig("server: 'https://c.example', certificate-authority: cert", user))
		return r.Resolve(t.Context(), resolvertest.Named(config+"+c"))
	}
	for _, path := range []string{"token", "./token", filepath.Join(allowed, "token"), "good-link",
		"../allowed/token"} {
		access, err := read("token: other, client-certificate: cert, client-key: key, tokenFile: '" + path + "'")
		require.NoError(t, err, path)
		got := access.Config()
		require.Equal(t, "inside", got.BearerToken)
		require.Equal(t, who.Key, got.KeyData)
		requireOnlyAllowed(t, got)
	}
	for _, path := range []string{"../outside/token", filepath.Join(outside, "token"), "link", "relative-link",
		"dir/token", "pipe", "big", "missing",
		"/etc/hostname", "../../../../../../../../etc/hostname", ".", "/dev/zero"} {
		_, err := read("tokenFile: '" + path + "'")
		require.Error(t, err, path)
		require.ErrorContains(t, err, "user.tokenFile names a file", path)
		resolvertest.RequireNoCanary(t, err.Error())
	}
	secretSourced, err := resolver.Kubeconfig(resolvertest.Kubeconfig("server: 'https://c.example'",
		"tokenFile: token"),
		resolver.KubeconfigOptions{Allow: resolver.Allow{Files: allowed}})
	require.EqualError(t, err, "refused: user.tokenFile names a file by a relative path")
	require.True(t, secretSourced.IsZero())
	_, err = resolver.Files(resolver.FileOptions{Allow: resolver.Allow{Files: "relative"}}, dir)
	require.Error(t, err)
}

// until waits until a cluster's answer is as wanted, checking only when a
// change is reported.
func until(t *testing.T, changes <-chan resolver.Cluster, r resolver.Resolver, cluster resolver.Cluster,
	wanted func(resolver.Access, error) bool) {
	t.Helper()
	for {
		if access, err := r.Resolve(t.Context(), cluster); wanted(access, err) {
			return
		}
		select {
		case <-changes:
		case <-t.Context().Done():
			require.FailNow(t, "no report")
		}
	}
}

func hasToken(text string) func(resolver.Access, error) bool {
	return func(access resolver.Access, err error) bool { return err == nil && access.Config().BearerToken == text }
}

func isGone(_ resolver.Access, err error) bool { return err != nil }

// watchFiles runs Notify until the test ends.
func watchFiles(t *testing.T, r *resolver.FileResolver) <-chan resolver.Cluster {
	t.Helper()
	resolver.OnlyWhenNotified(r)
	changes := make(chan resolver.Cluster)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- r.Notify(ctx, func(cluster resolver.Cluster) {
			select {
			case changes <- cluster:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return changes
}

func TestFilesAreWatchedThroughEveryWayToReplaceThem(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	write(t, path, resolvertest.TokenConfig("one"))
	for name, given := range map[string]string{"as a file": path, "as a directory": dir} {
		t.Run(name, func(t *testing.T) {
			replace(t, path, resolvertest.TokenConfig("one"))
			r := files(t, resolver.FileOptions{}, given)
			changes := watchFiles(t, r)
			c := resolvertest.Named(path + "+c")
			until(t, changes, r, c, hasToken("one"))
			write(t, path, resolvertest.TokenConfig("two"))
			until(t, changes, r, c, hasToken("two"))
			replace(t, path, resolvertest.TokenConfig("three"))
			until(t, changes, r, c, hasToken("three"))
			require.NoError(t, os.Remove(path))
			until(t, changes, r, c, isGone)
			write(t, path, resolvertest.TokenConfig("four"))
			until(t, changes, r, c, hasToken("four"))
			write(t, path, []byte("half of a kubeconfi"))
			until(t, changes, r, c, isGone)
			_, err := r.Resolve(t.Context(), c)
			require.NotErrorIs(t, err, resolver.ErrNoAccess, "a broken file is no disappearance")
			clusters, err := r.Clusters(t.Context())
			require.NoError(t, err)
			require.Equal(t, []resolver.Cluster{c}, clusters)
		})
	}
}

func TestFilesOfAMountedSecretAreWatched(t *testing.T) {
	dir := t.TempDir()
	mount := filepath.Join(dir, "mount")
	publish := func(version, text string) {
		write(t, filepath.Join(mount, version, "config"), resolvertest.TokenConfig(text))
		require.NoError(t, os.Symlink(version, filepath.Join(mount, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(mount, "..data_tmp"), filepath.Join(mount, "..data")))
	}
	publish("..1", "one")
	require.NoError(t, os.Symlink("..data/config", filepath.Join(mount, "config")))
	for name, given := range map[string]string{"mount": mount, "file": filepath.Join(mount, "config")} {
		t.Run(name, func(t *testing.T) {
			r := files(t, resolver.FileOptions{}, given)
			changes := watchFiles(t, r)
			c := resolvertest.Named(filepath.Join(mount, "config") + "+c")
			until(t, changes, r, c, hasToken("one"))
			publish("..2", "two")
			until(t, changes, r, c, hasToken("two"))
			require.NoError(t, os.RemoveAll(filepath.Join(mount, "..1")))
			publish("..1", "one")
			until(t, changes, r, c, hasToken("one"))
		})
	}
}

func TestFilesAreWatchedBehindLinksReferencesAndNewDirectories(t *testing.T) {
	dir := t.TempDir()
	target, link, tokens := filepath.Join(dir, "far", "config"), filepath.Join(dir, "near", "config"),
		filepath.Join(dir, "tokens")
	later := filepath.Join(dir, "later")
	write(t, target, resolvertest.TokenConfig("one"))
	require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o700))
	require.NoError(t, os.Symlink(target, link))
	r := files(t, resolver.FileOptions{Allow: resolver.Allow{Files: dir}}, link, later)
	changes := watchFiles(t, r)
	c := resolvertest.Named(link + "+c")
	until(t, changes, r, c, hasToken("one"))
	replace(t, target, resolvertest.TokenConfig("two"))
	until(t, changes, r, c, hasToken("two"))

	write(t, filepath.Join(tokens, "t"), []byte("three"))
	replace(t, target, resolvertest.Kubeconfig("server: 'https://c.example'", "tokenFile: '"+
		filepath.Join(tokens, "t")+"'"))
	until(t, changes, r, c, hasToken("three"))
	replace(t, filepath.Join(tokens, "t"), []byte("four"))
	until(t, changes, r, c, hasToken("four"))

	write(t, filepath.Join(later, "a"), resolvertest.TokenConfig("five"))
	until(t, changes, r, resolvertest.Named(filepath.Join(later, "a")+"+c"), hasToken("five"))
	write(t, filepath.Join(later, "b"), resolvertest.TokenConfig("six"))
	until(t, changes, r, resolvertest.Named(filepath.Join(later, "b")+"+c"), hasToken("six"))
}

// TestHazardLinkOnTheWayIsReplaced checks that a change of any link on the way to
// a file is noticed: one to a directory, as where a release is switched, or one
// to another link.
func TestHazardLinkOnTheWayIsReplaced(t *testing.T) {
	for name, arrange := range map[string]func(base string) (given, path string, links map[string]string){
		"the directory that is given is a link": func(base string) (string, string, map[string]string) {
			current := filepath.Join(base, "current")
			return current, filepath.Join(current, "a"), map[string]string{current: ""}
		},
		"the directory of the file that is given is a link": func(base string) (string, string, map[string]string) {
			file := filepath.Join(base, "current", "a")
			return file, file, map[string]string{filepath.Join(base, "current"): ""}
		},
		"the file that is given is a link to a link": func(base string) (string, string, map[string]string) {
			link := filepath.Join(base, "near", "link")
			return link, link, map[string]string{
				link: filepath.Join("..", "far", "link"), filepath.Join(base, "far", "link"): "a",
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			given, path, links := arrange(base)
			release := func(version string) {
				write(t, filepath.Join(base, version, "a"), resolvertest.TokenConfig(version))
				for link, to := range links {
					switch to {
					case "":
						to = filepath.Join(base, version)
					case "a":
						to = filepath.Join(base, version, "a")
					default:
						if _, err := os.Lstat(link); err == nil {
							continue
						}
					}
					require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o700))
					require.NoError(t, os.Symlink(to, link+".tmp"))
					require.NoError(t, os.Rename(link+".tmp", link))
				}
			}
			release("one")
			r := files(t, resolver.FileOptions{}, given)
			changes := watchFiles(t, r)
			c := resolvertest.Named(path + "+c")
			for _, version := range []string{"one", "two", "three"} {
				release(version)
				until(t, changes, r, c, hasToken(version))
			}
		})
	}
}

// TestHazardDirectoryThatGoesTakesItsClustersAlong checks that a missing
// directory keeps the clusters of its files, since it was more likely unmounted
// than deleted, and that a file missing from an existing directory does not.
func TestHazardDirectoryThatGoesTakesItsClustersAlong(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mount")
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, resolvertest.TokenConfig("one"))
	write(t, b, resolvertest.TokenConfig("two"))
	good := filepath.Join(t.TempDir(), "good")
	write(t, good, resolvertest.TokenConfig("good"))
	r := files(t, resolver.FileOptions{}, dir, good)
	listed := func(want ...resolver.Cluster) {
		t.Helper()
		clusters, err := r.Clusters(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, append(want, resolvertest.Named(good+"+c")), clusters)
	}
	listed(resolvertest.Named(a+"+c"), resolvertest.Named(b+"+c"))
	require.NoError(t, os.Remove(b))
	listed(resolvertest.Named(a + "+c"))

	require.NoError(t, os.Rename(dir, dir+".away"))
	listed(resolvertest.Named(a + "+c"))
	_, err := r.Resolve(t.Context(), resolvertest.Named(a+"+c"))
	require.ErrorContains(t, err, "directory")
	require.NotErrorIs(t, err, resolver.ErrNoAccess, "it may be there")
	_, err = r.Resolve(t.Context(), resolvertest.Named(b+"+c"))
	require.ErrorIs(t, err, resolver.ErrClusterNotFound, "it was deleted before")

	require.NoError(t, os.Rename(dir+".away", dir))
	write(t, a, resolvertest.TokenConfig("three"))
	listed(resolvertest.Named(a + "+c"))
	require.Equal(t, "three", resolvertest.Token(t, r, resolvertest.Named(a+"+c")))
	require.NoError(t, os.Remove(a))
	listed()
	require.NoError(t, os.Remove(dir))
	listed()
}

// TestHazardDirectoryOfAFileGoesAndTakesItsClustersAlong checks the same for a
// file that was given itself, and for one that a link leads to.
func TestHazardDirectoryOfAFileGoesAndTakesItsClustersAlong(t *testing.T) {
	for name, arrange := range map[string]func(t *testing.T, base, file string) (given, path string){
		"given": func(_ *testing.T, _, file string) (string, string) { return file, file },
		"a link to it is given": func(t *testing.T, base, file string) (string, string) {
			link := filepath.Join(base, "link")
			require.NoError(t, os.Symlink(file, link))
			return link, link
		},
		"a directory with a link to a link is given": func(t *testing.T, base, file string) (string, string) {
			near := filepath.Join(base, "near")
			require.NoError(t, os.Mkdir(near, 0o700))
			require.NoError(t, os.Symlink(file, filepath.Join(base, "far")))
			require.NoError(t, os.Symlink(filepath.Join("..", "far"), filepath.Join(near, "link")))
			return near, filepath.Join(near, "link")
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dir := filepath.Join(base, "mount")
			write(t, filepath.Join(dir, "a"), resolvertest.TokenConfig("one"))
			given, path := arrange(t, base, filepath.Join(dir, "a"))
			r := files(t, resolver.FileOptions{}, given)
			c := resolvertest.Named(path + "+c")
			listed := func(want ...resolver.Cluster) {
				t.Helper()
				clusters, err := r.Clusters(t.Context())
				require.NoError(t, err)
				require.Equal(t, want, clusters)
			}
			require.Equal(t, "one", resolvertest.Token(t, r, c))

			require.NoError(t, os.Rename(dir, dir+".away"))
			for range 2 {
				listed(c)
				_, err := r.Resolve(t.Context(), c)
				require.ErrorContains(t, err, "directory")
				require.NotErrorIs(t, err, resolver.ErrNoAccess, "it may be there")
			}

			require.NoError(t, os.Rename(dir+".away", dir))
			require.Equal(t, "one", resolvertest.Token(t, r, c))
			require.NoError(t, os.Remove(filepath.Join(dir, "a")))
			listed()
			_, err := r.Resolve(t.Context(), c)
			require.ErrorIs(t, err, resolver.ErrClusterNotFound, "it was deleted")
		})
	}
}
