// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package wiretest builds objects as API servers send them, for tests and
// benchmarks. The same number always yields the same bytes.
package wiretest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// replicas is the number of pods per app.
const replicas = 5

// Pod returns pod number i as a kubelet leaves it: two containers, probes,
// volumes, tolerations, a complete status and managedFields. It has about 9 KB,
// of which 5.4 KB are not managedFields. The pods of one app have consecutive
// numbers.
func Pod(i int) []byte {
	p := newPod(i)
	var b strings.Builder
	b.WriteString(`{"kind":"Pod","apiVersion":"v1","metadata":{`)
	p.metadata(&b)
	b.WriteString(`,"managedFields":`)
	p.managedFields(&b)
	b.WriteString(`},"spec":{`)
	p.spec(&b)
	b.WriteString(`},"status":{`)
	p.status(&b)
	b.WriteString(`}}`)

	return []byte(b.String())
}

// pod holds the values that differ between pods.
type pod struct {
	app, namespace, hash, name, uid, owner, node, ip, hostIP, token string
	images                                                          [2]string
	containerIDs, imageIDs                                          [2]string
	rv                                                              int
	created                                                         time.Time
}

func newPod(i int) pod {
	app := i / replicas
	a := rand.New(rand.NewPCG(1, uint64(app)))
	r := rand.New(rand.NewPCG(2, uint64(i)))
	p := pod{
		app: [...]string{"checkout", "payments", "inventory", "search", "gateway", "profile"}[app%6] +
			fmt.Sprintf("-%d", app),
		namespace: fmt.Sprintf("team-%d", app%17),
		hash:      word(a, 10),
		owner:     uid(a),
	}
	p.name = p.app + "-" + p.hash + "-" + word(r, 5)
	p.uid, p.token = uid(r), word(r, 5)
	p.node = fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", r.IntN(8), r.IntN(250))
	p.ip = fmt.Sprintf("10.%d.%d.%d", r.IntN(255), r.IntN(255), r.IntN(255))
	p.hostIP = fmt.Sprintf("10.0.%d.%d", r.IntN(8), r.IntN(250))
	for c := range p.images {
		p.images[c] = fmt.Sprintf("registry.example.com/%s/%s:v1.%d.%d", p.namespace, [...]string{p.app, "proxy"}[c],
			a.IntN(30), a.IntN(10))
		p.imageIDs[c] = digest(a)
		p.containerIDs[c] = digest(r)
	}
	p.rv = 1_000_000 + r.IntN(9_000_000)
	p.created = time.Date(2025, 3, 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), 0, time.UTC)

	return p
}

func word(r *rand.Rand, n int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

func hexDigits(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdef"[r.IntN(16)]
	}
	return string(b)
}

func uid(r *rand.Rand) string {
	return hexDigits(r, 8) + "-" + hexDigits(r, 4) + "-4" + hexDigits(r, 3) + "-a" + hexDigits(r, 3) + "-" +
		hexDigits(r, 12)
}

func digest(r *rand.Rand) string { return hexDigits(r, 64) }

func (p *pod) at(seconds int) string {
	return p.created.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339)
}

func (p *pod) metadata(b *strings.Builder) {
	fmt.Fprintf(b, `"name":%q,"generateName":"%s-%s-","namespace":%q,"uid":%q,"resourceVersion":"%d","generation":1,`+
		`"creationTimestamp":%q`,
		p.name, p.app, p.hash, p.namespace, p.uid, p.rv, p.at(0))
	fmt.Fprintf(b, `,"labels":{"app.kubernetes.io/instance":%q,"app.kubernetes.io/name":%q,`+
		`"app.kubernetes.io/part-of":"shop","pod-template-hash":%q}`,
		p.app, p.app, p.hash)
	b.WriteString(`,"annotations":{"kubectl.kubernetes.io/restartedAt":"2025-02-27T08:12:44Z",` +
		`"prometheus.io/port":"8080","prometheus.io/scrape":"true"}`)
	fmt.Fprintf(b, `,"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"%s-%s","uid":%q,`+
		`"controller":true,"blockOwnerDeletion":true}]`,
		p.app, p.hash, p.owner)
}

func (p *pod) managedFields(b *strings.Builder) {
	fmt.Fprintf(b, `[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":%q,`+
		`"fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},`+
		`"f:kubectl.kubernetes.io/restartedAt":{},"f:prometheus.io/port":{},"f:prometheus.io/scrape":{}},`+
		`"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/name":{},`+
		`"f:app.kubernetes.io/part-of":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},`+
		`"k:{\"uid\":\"%s\"}":{}}},"f:spec":{"f:affinity":{},"f:containers":{`, p.at(0), p.owner)
	for c, name := range [...]string{"app", "proxy"} {
		if c > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, `"k:{\"name\":\"%s\"}":{".":{},"f:args":{},"f:env":{".":{},`+
			`"k:{\"name\":\"LOG_LEVEL\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"POD_IP\"}":{".":{},`+
			`"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}},"k:{\"name\":\"POD_NAME\"}":{".":{},"f:name":{},`+
			`"f:valueFrom":{".":{},"f:fieldRef":{}}}},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{".":{},`+
			`"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{},`+
			`"f:successThreshold":{},"f:timeoutSeconds":{}},"f:name":{},"f:ports":{".":{},`+
			`"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},`+
			`"f:protocol":{}}},"f:readinessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},`+
			`"f:port":{},"f:scheme":{}},"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},`+
			`"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},`+
			`"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}`, name)
	}

	fmt.Fprintf(b, `},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},`+
		`"f:securityContext":{},"f:serviceAccount":{},"f:serviceAccountName":{},"f:terminationGracePeriodSeconds":{},`+
		`"f:volumes":{".":{},"k:{\"name\":\"config\"}":{".":{},"f:configMap":{".":{},"f:defaultMode":{},"f:name":{}},`+
		`"f:name":{}}}}}},{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":%q,`+
		`"fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},`+
		`"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},`+
		`"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},`+
		`"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},`+
		`"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},`+
		`"k:{\"ip\":\"%s\"}":{".":{},"f:ip":{}}},"f:startTime":{}}},"subresource":"status"}]`, p.at(9), p.ip)
}

func (p *pod) spec(b *strings.Builder) {
	fmt.Fprintf(b, `"volumes":[{"name":"config","configMap":{"name":"%s-config","defaultMode":420}},`+
		`{"name":"kube-api-access-%s","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,`+
		`"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},`+
		`{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1",`+
		`"fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],"containers":[`, p.app, p.token)
	for c, name := range [...]string{"app", "proxy"} {
		if c > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, `{"name":%q,"image":%q,"args":["--config=/etc/%s/config.yaml","--listen=:8080"],`+
			`"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"LOG_LEVEL",`+
			`"value":"info"},{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1",`+
			`"fieldPath":"metadata.name"}}},{"name":"POD_IP","valueFrom":{"fieldRef":{"apiVersion":"v1",`+
			`"fieldPath":"status.podIP"}}}],"resources":{"limits":{"memory":"512Mi"},"requests":{"cpu":"100m",`+
			`"memory":"256Mi"}},"volumeMounts":[{"name":"config","mountPath":"/etc/%s"},{"name":"kube-api-access-%s",`+
			`"readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],`+
			`"livenessProbe":{"httpGet":{"path":"/healthz","port":8080,"scheme":"HTTP"},"timeoutSeconds":1,`+
			`"periodSeconds":10,"successThreshold":1,"failureThreshold":3},`+
			`"readinessProbe":{"httpGet":{"path":"/readyz","port":8080,"scheme":"HTTP"},"timeoutSeconds":1,`+
			`"periodSeconds":10,"successThreshold":1,"failureThreshold":3},`+
			`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",`+
			`"imagePullPolicy":"IfNotPresent"}`,
			name, p.images[c], p.app, p.app, p.token)
	}

	fmt.Fprintf(b, `],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst",`+
		`"serviceAccountName":%q,"serviceAccount":%q,"nodeName":%q,"securityContext":{},`+
		`"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready",`+
		`"operator":"Exists","effect":"NoExecute","tolerationSeconds":300},{"key":"node.kubernetes.io/unreachable",`+
		`"operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,`+
		`"preemptionPolicy":"PreemptLowerPriority"`, p.app, p.app, p.node)
}

func (p *pod) status(b *strings.Builder) {
	b.WriteString(`"phase":"Running","conditions":[`)
	for c, cond := range [...]struct {
		name string
		at   int
	}{{"PodReadyToStartContainers", 3}, {"Initialized", 0}, {"Ready", 9}, {"ContainersReady", 9}, {"PodScheduled", 0}} {
		if c > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, `{"type":%q,"status":"True","lastProbeTime":null,"lastTransitionTime":%q}`, cond.name,
			p.at(cond.at))
	}

	fmt.Fprintf(b, `],"hostIP":%q,"hostIPs":[{"ip":%q}],"podIP":%q,"podIPs":[{"ip":%q}],"startTime":%q,`+
		`"containerStatuses":[`, p.hostIP, p.hostIP, p.ip, p.ip, p.at(0))
	for c, name := range [...]string{"app", "proxy"} {
		if c > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, `{"name":%q,"state":{"running":{"startedAt":%q}},"lastState":{},"ready":true,"restartCount":0,`+
			`"image":%q,"imageID":"registry.example.com/%s@sha256:%s","containerID":"containerd://%s","started":true}`,
			name, p.at(2+c), p.images[c], name, p.imageIDs[c], p.containerIDs[c])
	}

	b.WriteString(`],"qosClass":"Burstable"`)
}
