// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// sidecar is the name of the smaller container.
const sidecar = "proxy"

// apps are the names of the applications that the Pods belong to.
var apps = []string{"checkout", "payments", "inventory", "search", "gateway", "profile"}

// Pod returns pod number i as created by its ReplicaSet's controller, the
// scheduler and admission, with the kubelet's additions. The same number always
// yields the same pod.
func (g Generator) Pod(i int) *corev1.Pod {
	app := i / g.replicas()
	shared, own := g.random(sharedByApp, app), g.random(ownOfPod, i)
	name := appName(app)
	hash := word(shared, 10)
	owner := types.UID(uid(shared))
	token := "kube-api-access-" + word(own, 5)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:         name + "-" + hash + "-" + word(own, 5),
			GenerateName: name + "-" + hash + "-",
			Namespace:    NamespaceOf(app),
			Labels: map[string]string{
				"app.kubernetes.io/name":     name,
				"app.kubernetes.io/instance": name,
				"app.kubernetes.io/part-of":  "shop",
				"pod-template-hash":          hash,
			},
			Annotations: map[string]string{
				"kubectl.kubernetes.io/restartedAt": "2025-02-27T08:12:44Z",
				"prometheus.io/port":                "8080",
				"prometheus.io/scrape":              "true",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion:         "apps/v1",
				Kind:               "ReplicaSet",
				Name:               name + "-" + hash,
				UID:                owner,
				Controller:         new(true),
				BlockOwnerDeletion: new(true),
			}},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: name,
			NodeName:           fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", own.IntN(8), own.IntN(250)),
			Volumes:            []corev1.Volume{configVolume(name), tokenVolume(token)},
			Tolerations: []corev1.Toleration{
				evictedAfter("node.kubernetes.io/not-ready"),
				evictedAfter("node.kubernetes.io/unreachable"),
			},
		},
	}
	addContainers(p, name, token, shared, own)
	run(p, own)
	setDefaults(&p.Spec)
	setAdmitted(p)

	return p
}

// addContainers adds the two containers of an app's Pod, with their status.
func addContainers(p *corev1.Pod, name, token string, shared, own *rand.Rand) {
	for _, c := range [...]string{"app", sidecar} {
		repository := "registry.example.com/" + p.Namespace + "/" + name + "-" + c
		image := fmt.Sprintf("%s:v1.%d.%d", repository, shared.IntN(30), shared.IntN(10))
		p.Spec.Containers = append(p.Spec.Containers, container(c, image, name, token))
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name:        c,
			Image:       image,
			Ready:       true,
			Started:     new(true),
			ImageID:     repository + "@sha256:" + hex(shared, 64),
			ContainerID: "containerd://" + hex(own, 64),
		})
	}
}

func container(name, image, app, token string) corev1.Container {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{
			Name:      name,
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}},
		}
	}
	c := corev1.Container{
		Name:            name,
		Image:           image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            []string{"--config=/etc/" + app + "/config.yaml", "--listen=:8080"},
		Ports:           []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Env:             []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, field("POD_NAME", "metadata.name")},
		Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("100m"),
				corev1.ResourceMemory: resource.MustParse("256Mi"),
			},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/" + app},
			{Name: token, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"},
		},
		LivenessProbe:  probe("/healthz", 8080),
		ReadinessProbe: probe("/readyz", 8080),
	}
	if name == sidecar { // it has less configuration and fewer resources
		c.Args, c.LivenessProbe, c.Resources = nil, nil, corev1.ResourceRequirements{}
		c.Env, c.VolumeMounts = c.Env[:1], c.VolumeMounts[1:]
		c.Ports = []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP}}
		c.ReadinessProbe = probe("/readyz", 9090)
	}
	return c
}

func probe(path string, port int32) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)},
	}}
}

func configVolume(app string) corev1.Volume {
	return corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: app + "-config"},
		},
	}}
}

func tokenVolume(name string) corev1.Volume {
	sources := []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
			ExpirationSeconds: new(int64(3607)),
			Path:              "token",
		}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
			Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
			Path:     "namespace",
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
		}}}},
	}
	return corev1.Volume{
		Name:         name,
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}},
	}
}

func evictedAfter(taint string) corev1.Toleration {
	return corev1.Toleration{
		Key:               taint,
		Operator:          corev1.TolerationOpExists,
		Effect:            corev1.TaintEffectNoExecute,
		TolerationSeconds: new(int64(300)),
	}
}

// run completes the status of a running pod.
func run(p *corev1.Pod, own *rand.Rand) {
	created := time.Date(2025, 3, 1+own.IntN(28), own.IntN(24), own.IntN(60), own.IntN(60), 0, time.UTC)
	at := func(seconds int) metav1.Time {
		return metav1.NewTime(created.Add(time.Duration(seconds) * time.Second))
	}
	s := &p.Status
	s.Phase = corev1.PodRunning
	s.HostIP = fmt.Sprintf("10.0.%d.%d", own.IntN(8), own.IntN(250))
	s.PodIP = fmt.Sprintf("10.%d.%d.%d", own.IntN(255), own.IntN(255), own.IntN(255))
	s.HostIPs, s.PodIPs = []corev1.HostIP{{IP: s.HostIP}}, []corev1.PodIP{{IP: s.PodIP}}
	s.StartTime = new(at(0))
	for _, c := range []struct {
		kind corev1.PodConditionType
		at   int
	}{
		{corev1.PodReadyToStartContainers, 3},
		{corev1.PodInitialized, 0},
		{corev1.PodReady, 9},
		{corev1.ContainersReady, 9},
		{corev1.PodScheduled, 0},
	} {
		s.Conditions = append(s.Conditions,
			corev1.PodCondition{Type: c.kind, Status: corev1.ConditionTrue, LastTransitionTime: at(c.at)})
	}

	for i := range s.ContainerStatuses {
		s.ContainerStatuses[i].State.Running = &corev1.ContainerStateRunning{StartedAt: at(2 + i)}
	}
}
