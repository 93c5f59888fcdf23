// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import "sigs.k8s.io/controller-runtime/pkg/manager"

// SetupWithManager is [New], with the scheme and the logger of the manager where the options have none, and the manager's
// own cluster as the hub that Options.DialPolicy knows, if it names none. It makes the manager run the cache, and adds HealthzCheck and ReadyzCheck to the manager's, named fleetcache, or fleetcache-Name where
// Options.Name is set. The errors are those of New and of the manager.
func SetupWithManager(mgr manager.Manager, o Options) (*ClusterCache, error) {
	if o.Scheme == nil {
		o.Scheme = mgr.GetScheme()
	}
	if o.Logger.GetSink() == nil {
		o.Logger = mgr.GetLogger()
	}
	if hub := mgr.GetConfig(); len(o.DialPolicy.Hub) == 0 && hub != nil && hub.Host != "" {
		o.DialPolicy.Hub = []string{hub.Host}
	}
	name := "fleetcache"
	if o.Name != "" {
		name += "-" + o.Name
	}
	cc, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := mgr.AddHealthzCheck(name, cc.HealthzCheck()); err != nil {
		return nil, err
	}
	if err := mgr.AddReadyzCheck(name, cc.ReadyzCheck()); err != nil {
		return nil, err
	}
	return cc, mgr.Add(cc)
}
