// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package resolver finds out how to reach clusters: from Secrets of the common
// conventions in the hub, from files, or from the operator's own code.
//
// # Usage
//
// A [Resolver] turns the key of a cluster into an [Access]: a configuration for
// client-go that was checked and rebuilt, a revision, and the objects it came
// from. Most resolvers also report when an answer may have changed ([Notifier])
// and which clusters exist ([Lister]). A cluster cache has one resolver;
// [Chain] combines several into one:
//
//	hub, err := client.NewWithWatch(manager.GetConfig(), client.Options{})
//	fleet, err := resolver.ClusterAPI(hub, resolver.HubOptions{ReadyObject: resolver.ClusterAPIReady("v1beta2")})
//	clusters := resolver.Chain(resolver.InCluster(), fleet)
//
// The key is a namespace and a name; the zero key is the hub itself. Custom
// resolvers return the results of [Kubeconfig], [FromToken] or, for
// configurations the operator vouches for, [NewAccess].
//
// # Which resolver fits
//
//	system                  resolver              key of a cluster      where the access is
//	Cluster API, Rancher    ClusterAPI            namespace/name        Secret <name>-kubeconfig, key value, label
//	                                                                    cluster.x-k8s.io/cluster-name=<name>
//	Flux                    Flux                  the object's          spec.kubeConfig: secretRef (given key, or
//	                                              namespace/name        value, value.yaml), or configMapRef (address,
//	                                                                    ca.crt)
//	Argo CD                 ArgoCD                Secret's name         Secrets argocd.argoproj.io/secret-type=cluster
//	                                                                    with keys server, config
//	multicluster-runtime    MulticlusterRuntime   Secret's name         Secrets sigs.k8s.io/multicluster-runtime-
//	                                                                    kubeconfig=true, key kubeconfig
//	Istio                   Istio                 key in the Secret     Secrets istio/multiCluster=true, every key
//	Open Cluster Management OCM                   ManagedCluster's name Secret of a ManagedServiceAccount: token,
//	                                                                    ca.crt; URL from the ManagedCluster
//	Karmada                 Karmada               Cluster's name        spec.apiEndpoint, spec.secretRef: token,
//	                                                                    caBundle
//	Linkerd                 Secrets, with Type    own ID, by a label    type mirror.linkerd.io/remote-kubeconfig,
//	                        and ID                                      key kubeconfig
//	Sveltos                 Secrets, with         namespace/name        Secret <name>-sveltos-kubeconfig, key
//	                        NameSuffix and Keys                         re-kubeconfig or kubeconfig
//	vcluster                Secrets, with         namespace/name        Secret vc-<name>, label app=vcluster, key
//	                        Selector, VClusterName                      config
//	Gloo, Kueue             Secrets, with Type,   namespace/name        key kubeconfig, or config
//	                        Namespace or Selector
//	token Secrets           ServiceAccounts       namespace/name        keys token, ca.crt; URL from a function
//	objects of any kind     Referenced            the object's          a Secret that a field, or a function, names;
//	                                              namespace/name        key kubeconfig, value, config, or a field's
//	objects of any kind     Objects               the object's          the object itself, by a function
//	                                              namespace/name
//	Cluster API, by Cluster ClusterAPIClusters    namespace/name        as ClusterAPI, listed by Cluster objects
//	cluster inventory       inventory.Profiles,   the ClusterProfile's  status.accessProviders with plugins that the
//	                        inventory.Secrets     namespace/name        operator configures; Secrets of a consumer
//	kubeconfig files        Files                 <path>+<context>      files and directories
//	a Pod's own cluster     InCluster             zero key              the Pod's service account
//	the operator's code     Static, Func          any                   a rest.Config
//	                        settable.New          any                   an Access that a reconciler sets
//
// Where a convention has several objects for one cluster, the oldest one holds
// it, so that a cluster cannot be taken over by writing another object. A Secret
// that a writer adds for other readers of the same cluster is no cluster:
// docs/reaching.md lists what each writer writes.
//
// # Labels
//
// An [Access] carries labels of its cluster ([Access.Labels]). Resolvers of the
// hub give those of the objects that describe it: the Secret, the Cluster, the
// ManagedCluster, and the [ReadyObject], which takes precedence. For files,
// [FileOptions.Labels] returns them; custom resolvers use [Access.WithLabels].
// Labels are not part of the revision: a change of them is reported, and costs
// no connection. [Select] narrows a resolver to the clusters whose labels match.
//
// # Changes
//
// Resolvers of the hub follow objects by one list and one watch for each kind,
// with the convention's selector evaluated by the hub's API server; a Secret
// that another object names is watched by its name. No resolver reads all
// Secrets of a hub. A change is reported as soon as the hub's watch delivers
// it. Objects whose meaning has not changed are not reported, even if their
// bytes have: [Access.Revision] covers only normalized content. An object that
// is deleted and created again within [HubOptions.Grace] does not count as
// deleted. While the hub does not answer, the last answers stay; once it
// answers again, the watch resumes, and a hub whose history was lost or
// restored from a backup is listed again.
//
// [Diff] returns the parts that changed, so that a new token or certificate
// need not cost a connection.
//
// # Errors
//
// Every error names the cluster, the object and the field, but none of their
// content ([AccessError]). [ErrNoAccess] means "not yet": [ErrClusterNotFound],
// [ErrSecretNotFound], [ErrNotReady]. [ErrKeyMissing] and [KubeconfigError]
// mean that a description exists and is wrong, [RefusedError] that it is
// understood and not allowed.
//
// A cluster counts as gone if an error is [ErrClusterNotFound] and all parts of
// it, if it joins several, are errors about something not found: an answer that
// leaves open whether the cluster exists deletes nothing.
//
// # Security
//
// The author of a kubeconfig in a Secret chooses what the operator does with
// it. So a kubeconfig is not trusted:
//
//   - An access is rebuilt from a list of known fields: server, authority data,
//     server name, client certificate and key data, token, compression.
//     Credential plugins, auth providers, files of any kind, unverified TLS,
//     plain http, proxies, impersonation and passwords are refused, not
//     dropped, unless [Allow] permits them by name. clientcmd would read a
//     token file while parsing, and send the operator's own token to the
//     author's server; it never gets that far.
//   - An access without any credentials is refused unless [Allow.Anonymous]
//     permits it.
//   - Parsed documents are small (256 KiB) and do not grow: YAML anchors are
//     refused.
//   - A server's URL has https, a plain host, and at most a path prefix;
//     unusual spellings of addresses are refused.
//   - [DialPolicy] judges the address that is dialed, after DNS. Link-local
//     addresses and metadata services are always refused, loopback and the
//     hub's own API server by default. A ClusterCache applies it by itself;
//     other users of the configuration have to set it as Dial.
//   - The environment's proxy is not used unless [Allow.ProxyFromEnvironment]
//     permits it, and no connection is shared through client-go's default
//     transport.
//   - Printing, formatting, logging or marshaling an [Access] shows no
//     credential.
//
// The operator's own configurations ([Static], [NewAccess], [InCluster]) are
// used as they are; [Access.Trusted] returns true for them.
//
// # Tests
//
// The leading test is TestConventions (test/hubs). It has each convention on a
// hub. TestHostileKubeconfigsTouchNothingAndAreRefused covers kubeconfigs that
// others wrote. TestDialPolicyRefusesAddressesInAllSpellings covers addresses.
// TestRealHubIsFollowedThroughRestartsAndRollbacks (test/hubs) covers a real
// hub.
package resolver
