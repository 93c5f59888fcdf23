// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package objects

import corev1 "k8s.io/api/core/v1"

// setDefaults sets the fields of the spec of a Pod, or of a template of Pods,
// that an API server sets, so that generated objects are those that a server
// would store.
func setDefaults(s *corev1.PodSpec) {
	s.RestartPolicy = corev1.RestartPolicyAlways
	s.DNSPolicy = corev1.DNSClusterFirst
	s.SchedulerName = corev1.DefaultSchedulerName
	s.TerminationGracePeriodSeconds = new(int64(corev1.DefaultTerminationGracePeriodSeconds))
	s.SecurityContext = &corev1.PodSecurityContext{}
	s.DeprecatedServiceAccount = s.ServiceAccountName
	for i := range s.Volumes {
		switch v := &s.Volumes[i]; {
		case v.ConfigMap != nil:
			v.ConfigMap.DefaultMode = new(corev1.ConfigMapVolumeSourceDefaultMode)
		case v.Projected != nil:
			v.Projected.DefaultMode = new(corev1.ProjectedVolumeSourceDefaultMode)
		}
	}

	for i := range s.Containers {
		c := &s.Containers[i]
		c.TerminationMessagePath = corev1.TerminationMessagePathDefault
		c.TerminationMessagePolicy = corev1.TerminationMessageReadFile
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if p != nil {
				p.HTTPGet.Scheme = corev1.URISchemeHTTP
				p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold = 1, 10, 1, 3
			}
		}
	}
}

// setAdmitted sets what the scheduler's and admission's plugins set in a Pod.
func setAdmitted(p *corev1.Pod) {
	p.Spec.EnableServiceLinks = new(corev1.DefaultEnableServiceLinks)
	p.Spec.Priority = new(int32(0))
	p.Spec.PreemptionPolicy = new(corev1.PreemptLowerPriority)
	p.Status.QOSClass = corev1.PodQOSBurstable
}
