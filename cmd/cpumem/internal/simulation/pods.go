// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxReplicas is more than a node can run.
const maxReplicas = 1000

// objects does the work of the API server and its controllers: it fills in
// defaults, makes pods of Deployments and claims from templates.
func (d *documents) objects() (Objects, error) {
	b := builder{
		Objects:   Objects{claims: make(map[key]*resourceapi.ResourceClaim), classes: d.classes, skipped: d.skipped},
		templates: make(map[key]*resourceapi.ResourceClaimTemplate),
		pods:      make(map[key]bool),
	}
	for _, object := range d.ordered {
		switch o := object.(type) {
		case *resourceapi.ResourceClaim:
			if err := b.addClaim(o); err != nil {
				return Objects{}, err
			}
		case *resourceapi.ResourceClaimTemplate:
			b.templates[key{o.Namespace, o.Name}] = o
		}
	}
	for _, object := range d.ordered {
		for _, pod := range d.podsOf(object) {
			if err := b.addPod(pod); err != nil {
				return Objects{}, fmt.Errorf("Pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
		}
	}
	return b.Objects, nil
}

// podsOf returns the pods that the object stands for.
func (d *documents) podsOf(object any) []*corev1.Pod {
	switch o := object.(type) {
	case *corev1.Pod:
		return []*corev1.Pod{o}
	case *appsv1.Deployment:
		replicas := 1
		if o.Spec.Replicas != nil {
			replicas = int(*o.Spec.Replicas)
		}
		var out []*corev1.Pod
		for i := range replicas {
			pod := &corev1.Pod{Spec: *o.Spec.Template.Spec.DeepCopy()}
			pod.Namespace, pod.Name = o.Namespace, fmt.Sprintf("%s-%d", o.Name, i)
			out = append(out, pod)
		}
		return out
	case *resourceapi.ResourceClaim:
		if !d.referred[identity(kindClaim, o.Namespace, o.Name)] {
			return []*corev1.Pod{podFor(o, corev1.PodResourceClaim{ResourceClaimName: &o.Name})}
		}
	case *resourceapi.ResourceClaimTemplate:
		if !d.referred[identity(kindTemplate, o.Namespace, o.Name)] {
			return []*corev1.Pod{podFor(o, corev1.PodResourceClaim{ResourceClaimTemplateName: &o.Name})}
		}
	}
	return nil
}

// podFor returns a pod for a claim or template that no pod refers to.
func podFor(o metav1.Object, claim corev1.PodResourceClaim) *corev1.Pod {
	claim.Name = "claim"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: "pod-of-" + o.GetName()},
		Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{claim},
			Containers: []corev1.Container{{
				Name: "container", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: claim.Name}}},
			}},
		},
	}
}

type builder struct {
	Objects
	templates map[key]*resourceapi.ResourceClaimTemplate
	pods      map[key]bool
}

func (b *builder) addPod(pod *corev1.Pod) error {
	id := key{pod.Namespace, pod.Name}
	if b.pods[id] {
		return errors.New("is there twice")
	}
	b.pods[id] = true
	pod.UID = uid("pod", id)
	pod.Status = corev1.PodStatus{QOSClass: qosClass(&pod.Spec)}
	for _, entry := range pod.Spec.ResourceClaims {
		if entry.ResourceClaimName != nil {
			if b.claims[key{pod.Namespace, *entry.ResourceClaimName}] == nil {
				return fmt.Errorf("resourceClaims %s: ResourceClaim %s/%s is not in the file",
					entry.Name, pod.Namespace, *entry.ResourceClaimName)
			}
			continue
		}
		template := b.templates[key{pod.Namespace, *entry.ResourceClaimTemplateName}]
		if template == nil {
			return fmt.Errorf("resourceClaims %s: ResourceClaimTemplate %s/%s is not in the file",
				entry.Name, pod.Namespace, *entry.ResourceClaimTemplateName)
		}
		claim := &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: pod.Namespace, Name: pod.Name + "-" + entry.Name,
				Annotations: map[string]string{resourceapi.PodResourceClaimAnnotation: entry.Name},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true),
				}},
			},
			Spec: *template.Spec.Spec.DeepCopy(),
		}
		if err := b.addClaim(claim); err != nil {
			return err
		}
		pod.Status.ResourceClaimStatuses = append(pod.Status.ResourceClaimStatuses,
			corev1.PodResourceClaimStatus{Name: entry.Name, ResourceClaimName: &claim.Name})
	}
	b.Objects.pods = append(b.Objects.pods, pod)
	return nil
}

// uid makes an object's UID from its kind and name (I8).
func uid(kind string, id key) types.UID {
	h := sha256.Sum256([]byte(kind + " " + id.namespace + "/" + id.name))
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

// Clone returns objects with copies of the claims.
func (o Objects) Clone() Objects {
	claims := make(map[key]*resourceapi.ResourceClaim, len(o.claims))
	for id, c := range o.claims {
		claims[id] = c.DeepCopy()
	}
	o.claims = claims
	return o
}

// ClaimsOf returns the claims of a pod, in the pod's order.
func (o Objects) ClaimsOf(pod *corev1.Pod) []*resourceapi.ResourceClaim {
	var out []*resourceapi.ResourceClaim
	made := make(map[string]string)
	for _, s := range pod.Status.ResourceClaimStatuses {
		made[s.Name] = *s.ResourceClaimName
	}
	for _, entry := range pod.Spec.ResourceClaims {
		name := made[entry.Name]
		if entry.ResourceClaimName != nil {
			name = *entry.ResourceClaimName
		}
		if claim := o.claims[key{pod.Namespace, name}]; !slices.Contains(out, claim) {
			out = append(out, claim)
		}
	}
	return out
}
