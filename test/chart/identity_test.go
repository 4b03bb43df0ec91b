// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// identityValues are settings with which names of objects could differ.
var identityValues = []string{
	"{}",
	"layout: sidecar",
	"fullnameOverride: other",
	"namespaceOverride: elsewhere",
	"layout: sidecar\nfullnameOverride: other\nnamespaceOverride: elsewhere",
}

// A52: the actuator has no identity at the API server: its container has no token,
// and its account has no role.
func TestActuatorHasNoIdentity(t *testing.T) {
	t.Parallel()
	for _, values := range identityValues {
		all := render(t, values)
		pod := daemonSet(t, all, layoutOf(all).actuator).Spec.Template.Spec
		require.False(t, *pod.AutomountServiceAccountToken)
		for _, m := range container(t, pod, "actuator").VolumeMounts {
			for _, v := range pod.Volumes {
				require.Falsef(t, v.Name == m.Name && v.Projected != nil, "the actuator mounts %s", v.Name)
			}
		}
		if len(pod.Containers) > 1 {
			continue // the account is the frontend's; the actuator does not mount the token
		}
		for _, binding := range of[*rbacv1.ClusterRoleBinding](all) {
			for _, subject := range binding.Subjects {
				require.NotEqual(t, pod.ServiceAccountName, subject.Name)
			}
		}
		for _, binding := range of[*rbacv1.RoleBinding](all) {
			for _, subject := range binding.Subjects {
				require.NotEqual(t, pod.ServiceAccountName, subject.Name)
			}
		}
	}
	for _, sa := range of[*corev1.ServiceAccount](render(t, "{}")) {
		require.False(t, *sa.AutomountServiceAccountToken, sa.Name)
	}
}

func layoutOf(all objects) layoutNames {
	for _, ds := range all {
		if c, ok := ds.(interface{ GetName() string }); ok &&
			slices.Contains([]string{"r-dra-driver-cpumem-node", "other-node"}, c.GetName()) {
			return layouts["sidecar"]
		}
	}
	return layouts["separate"]
}

// A52: the frontend has exactly these rights, and its token is bound to its pod.
func TestFrontendsRights(t *testing.T) {
	t.Parallel()
	for _, values := range identityValues {
		all := render(t, values)
		ds := daemonSet(t, all, layoutOf(all).frontend)
		pod := ds.Spec.Template.Spec
		account := rbacv1.Subject{Kind: "ServiceAccount", Name: pod.ServiceAccountName, Namespace: ds.Namespace}

		var rules []rbacv1.PolicyRule
		for _, binding := range of[*rbacv1.ClusterRoleBinding](all) {
			if !slices.Contains(binding.Subjects, account) {
				continue
			}
			for _, role := range of[*rbacv1.ClusterRole](all) {
				if role.Name == binding.RoleRef.Name {
					rules = append(rules, role.Rules...)
				}
			}
		}
		require.Equal(t, []rbacv1.PolicyRule{
			{
				APIGroups: []string{"resource.k8s.io"},
				Resources: []string{"resourceslices"},
				Verbs:     []string{"list", "watch", "create", "update", "delete"},
			},
			{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims/status"}, Verbs: []string{"patch"}},
			{
				APIGroups:     []string{"resource.k8s.io"},
				Resources:     []string{"resourceclaims/driver"},
				ResourceNames: []string{"dra.cpumem"},
				Verbs:         []string{"associated-node:patch"},
			},
			{APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get"}},
		}, rules)

		// Events about nodes live in the default namespace only.
		bindings, roles := of[*rbacv1.RoleBinding](all), of[*rbacv1.Role](all)
		require.Len(t, bindings, 1)
		require.Len(t, roles, 1)
		require.Equal(t, []rbacv1.Subject{account}, bindings[0].Subjects)
		require.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: roles[0].Name}, bindings[0].RoleRef)
		require.Equal(t, []string{"default", "default"}, []string{bindings[0].Namespace, roles[0].Namespace})
		require.Equal(t, []rbacv1.PolicyRule{
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}},
		}, roles[0].Rules)

		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Projected != nil })
		sources := pod.Volumes[i].Projected.Sources
		require.Len(t, sources, 3)
		require.Equal(t, "token", sources[0].ServiceAccountToken.Path)
		require.Empty(t, sources[0].ServiceAccountToken.Audience)
		require.Equal(t, "kube-root-ca.crt", sources[1].ConfigMap.Name)
		require.Equal(t, "namespace", sources[2].DownwardAPI.Items[0].Path)
	}
}

// The account of the Job after an uninstall has only one right.
func TestCleanupsRights(t *testing.T) {
	t.Parallel()
	for _, role := range of[*rbacv1.ClusterRole](render(t, "{}")) {
		if role.Name == "r-dra-driver-cpumem-cleanup" {
			require.Equal(t, []rbacv1.PolicyRule{
				{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"deletecollection"}},
			}, role.Rules)
			return
		}
	}
	require.Fail(t, "no role for the cleanup")
}

// The chart binds no more roles than the frontend's two and the role of the Job after
// an uninstall, and makes no object of another kind that acts on the cluster, such as a
// webhook.
func TestNoOtherRights(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"separate", "sidecar"} {
		kinds := map[string]int{}
		for _, o := range render(t, "layout: "+layout) {
			kinds[o.GetObjectKind().GroupVersionKind().Kind]++
		}
		daemonSets := len(layouts[layout].names)
		require.Equal(t, map[string]int{
			"ClusterRole": 2, "ClusterRoleBinding": 2, "Role": 1, "RoleBinding": 1, "ServiceAccount": daemonSets + 1,
			"DaemonSet": daemonSets, "NetworkPolicy": daemonSets, "ConfigMap": 1, "Job": 1, "Pod": 1,
			"DeviceClass": 1, "ResourceClaimTemplate": 1,
			"ValidatingAdmissionPolicy": 3, "ValidatingAdmissionPolicyBinding": 3,
		}, kinds, layout)
	}
}

// policy is a rendered admission policy. Its expressions are evaluated.
type policy struct {
	t   *testing.T
	env *cel.Env
	// programs are the compiled expressions.
	programs map[string]cel.Program
	*admissionv1.ValidatingAdmissionPolicy
}

// newPolicy returns the policy with the suffix about in its name.
func newPolicy(t *testing.T, all objects, about string) policy {
	t.Helper()
	env, err := cel.NewEnv(cel.OptionalTypes(),
		cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
		cel.Variable("request", cel.DynType), cel.Variable("variables", cel.DynType))
	require.NoError(t, err)
	for _, p := range of[*admissionv1.ValidatingAdmissionPolicy](all) {
		if !strings.HasSuffix(p.Name, "-"+about) {
			continue
		}
		var bindings []*admissionv1.ValidatingAdmissionPolicyBinding
		for _, b := range of[*admissionv1.ValidatingAdmissionPolicyBinding](all) {
			if b.Spec.PolicyName == p.Name {
				bindings = append(bindings, b)
			}
		}
		require.Len(t, bindings, 1)
		require.Equal(t, []admissionv1.ValidationAction{admissionv1.Deny}, bindings[0].Spec.ValidationActions)
		require.Nil(t, bindings[0].Spec.MatchResources)
		require.Equal(t, admissionv1.Fail, *p.Spec.FailurePolicy)
		return policy{t: t, env: env, programs: make(map[string]cel.Program), ValidatingAdmissionPolicy: p}
	}
	require.Fail(t, "no policy about "+about)
	return policy{}
}

func (p policy) eval(expression string, in map[string]any) any {
	p.t.Helper()
	out, err := p.tryEval(expression, in)
	require.NoError(p.t, err, expression)
	return out
}

// tryEval returns the error of an expression that cannot be evaluated for the input.
func (p policy) tryEval(expression string, in map[string]any) (any, error) {
	p.t.Helper()
	program := p.programs[expression]
	if program == nil {
		ast, issues := p.env.Compile(expression)
		require.NoError(p.t, issues.Err(), expression)
		var err error
		program, err = p.env.Program(ast)
		require.NoError(p.t, err)
		p.programs[expression] = program
	}
	out, _, err := program.Eval(in)
	if err != nil {
		return nil, err
	}
	return out.Value(), nil
}

// matches reports whether the policy applies to the user.
func (p policy) matches(username string) bool {
	in := map[string]any{"request": map[string]any{"userInfo": map[string]any{"username": username}}}
	for _, c := range p.Spec.MatchConditions {
		if p.eval(c.Expression, in) != true {
			return false
		}
	}
	return true
}

// allows reports whether the policy allows a write. A refusal must have a message.
func (p policy) allows(extra map[string]any, object, oldObject any) bool {
	user := map[string]any{}
	if extra != nil {
		user["extra"] = extra
	}
	in := map[string]any{"request": map[string]any{"userInfo": user}, "object": object, "oldObject": oldObject}
	variables := map[string]any{}
	for _, v := range p.Spec.Variables {
		variables[v.Name] = p.eval(v.Expression, in)
	}
	in["variables"] = variables
	allowed := true
	for _, v := range p.Spec.Validations {
		if p.eval(v.Expression, in) != true {
			allowed = false
			if v.Message == "" {
				require.NotEmpty(p.t, p.eval(v.MessageExpression, in))
			}
		}
	}
	return allowed
}

// A52: the policies apply to the frontend's account only.
func TestPolicyMeansTheFrontend(t *testing.T) {
	t.Parallel()
	for _, values := range identityValues {
		all := render(t, values)
		ds := daemonSet(t, all, layoutOf(all).frontend)
		account := ds.Spec.Template.Spec.ServiceAccountName
		for _, about := range []string{"resourceslices", "claimstatus"} {
			p := newPolicy(t, all, about)
			require.True(t, p.matches(fmt.Sprintf("system:serviceaccount:%s:%s", ds.Namespace, account)))
			require.False(t, p.matches("system:serviceaccount:other-namespace:"+account))
			require.False(t, p.matches("system:node:n1"))
		}
	}
}

// A52: the policy allows slices of the own node and the own driver, for each verb.
func TestPolicyConfines(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, render(t, "{}"), "resourceslices")
	rule := p.Spec.MatchConstraints.ResourceRules[0]
	require.Equal(t, []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete}, rule.Operations)
	require.Equal(t, []string{"resourceslices"}, rule.Resources)

	slice := func(driver string, where map[string]any) any {
		spec := map[string]any{"driver": driver, "pool": map[string]any{"name": "n1"}}
		for k, v := range where {
			spec[k] = v
		}
		return map[string]any{"spec": spec}
	}
	own := slice("dra.cpumem", map[string]any{"nodeName": "n1"})
	for name, foreign := range map[string]any{
		"other node":      slice("dra.cpumem", map[string]any{"nodeName": "n2"}),
		"all nodes":       slice("dra.cpumem", map[string]any{"allNodes": true}),
		"node selector":   slice("dra.cpumem", map[string]any{"nodeSelector": map[string]any{}}),
		"per device":      slice("dra.cpumem", map[string]any{"perDeviceNodeSelection": true}),
		"another driver":  slice("dra.cpu", map[string]any{"nodeName": "n1"}),
		"driver's prefix": slice("dra.cpumem.example.com", map[string]any{"nodeName": "n1"}),
	} {
		t.Run(name, func(t *testing.T) {
			require.False(t, p.allows(onNode("n1"), foreign, nil), "create")
			require.False(t, p.allows(onNode("n1"), foreign, own), "update to")
			require.False(t, p.allows(onNode("n1"), own, foreign), "update from")
			require.False(t, p.allows(onNode("n1"), nil, foreign), "delete")
		})
	}
	require.True(t, p.allows(onNode("n1"), own, nil), "create")
	require.True(t, p.allows(onNode("n1"), own, own), "update")
	require.True(t, p.allows(onNode("n1"), nil, own), "delete")

	// A77: a slice of the own node in another node's pool hides that node's devices
	// from the scheduler. An existing slice of this kind may be removed.
	pooled := slice("dra.cpumem", map[string]any{"nodeName": "n1", "pool": map[string]any{"name": "n2"}})
	require.False(t, p.allows(onNode("n1"), pooled, nil), "create")
	require.False(t, p.allows(onNode("n1"), pooled, own), "update to")
	require.True(t, p.allows(onNode("n1"), own, pooled), "update from")
	require.True(t, p.allows(onNode("n1"), nil, pooled), "delete")

	// A token that is bound to no pod has no node.
	unbound := slice("dra.cpumem", map[string]any{"nodeName": ""})
	for _, extra := range []map[string]any{nil, {}, {"authentication.kubernetes.io/pod-name": []any{"p"}}, onNode("")} {
		require.False(t, p.allows(extra, own, nil))
		require.False(t, p.allows(extra, unbound, nil))
		require.False(t, p.allows(extra, nil, unbound))
	}
}

// A77: in the status of a claim, a frontend may change only the entries of its own
// node's devices.
func TestPolicyConfinesClaimStatus(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, render(t, "{}"), "claimstatus")
	rule := p.Spec.MatchConstraints.ResourceRules[0]
	require.Equal(t, []admissionv1.OperationType{admissionv1.Update}, rule.Operations)
	require.Equal(t, []string{"resourceclaims/status"}, rule.Resources)

	device := func(driver, pool, data string) any {
		return map[string]any{"driver": driver, "pool": pool, "device": "numa-0", "data": data}
	}
	type status = map[string]any
	claim := func(changes ...func(status)) any {
		s := status{
			"allocation": map[string]any{"devices": map[string]any{
				"results": []any{map[string]any{"driver": "dra.cpumem", "pool": "n1", "device": "numa-0"}},
			}},
			"reservedFor": []any{map[string]any{"resource": "pods", "name": "p", "uid": "u"}},
			"devices":     []any{device("gpu.example.com", "n1", "old"), device("dra.cpumem", "n2", "old")},
		}
		for _, change := range changes {
			change(s)
		}
		return map[string]any{"status": s}
	}
	devices := func(all ...any) func(status) { return func(s status) { s["devices"] = all } }
	without := func(field string) func(status) { return func(s status) { delete(s, field) } }
	others := []any{device("gpu.example.com", "n1", "old"), device("dra.cpumem", "n2", "old")}
	own := device("dra.cpumem", "n1", "new")

	for name, c := range map[string]struct {
		from, to any
		allowed  bool
	}{
		"nothing changes":        {claim(), claim(), true},
		"its own entry is added": {claim(), claim(devices(append(others, own)...)), true},
		"its own entry changes": {
			from:    claim(devices(device("dra.cpumem", "n1", "old"), others[0], others[1])),
			to:      claim(devices(own, others[0], others[1])),
			allowed: true,
		},
		"its own entry goes": {claim(devices(append(others, own)...)), claim(), true},
		"the first entry":    {claim(without("devices")), claim(devices(own)), true},
		"no status before":   {map[string]any{}, map[string]any{"status": status{"devices": []any{own}}}, true},
		"another allocation": {
			from:    claim(),
			to:      claim(func(s status) { s["allocation"] = map[string]any{"devices": map[string]any{}} }),
			allowed: false,
		},
		"no allocation any more":       {claim(), claim(without("allocation")), false},
		"an allocation where none was": {claim(without("allocation")), claim(), false},
		"reserved for another pod": {
			from:    claim(),
			to:      claim(func(s status) { s["reservedFor"] = []any{map[string]any{"resource": "pods", "name": "q", "uid": "v"}} }),
			allowed: false,
		},
		"reserved for nobody":            {claim(), claim(without("reservedFor")), false},
		"another driver's entry changes": {claim(), claim(devices(device("gpu.example.com", "n1", "new"), others[1])), false},
		"another driver's entry goes":    {claim(), claim(devices(others[1])), false},
		"another node's entry changes":   {claim(), claim(devices(others[0], device("dra.cpumem", "n2", "new"))), false},
		"another node's entry is added":  {claim(), claim(devices(append(others, device("dra.cpumem", "n3", "new"))...)), false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.allowed, p.allows(onNode("n1"), c.to, c.from))
		})
	}
	for _, extra := range []map[string]any{nil, {}, onNode("")} {
		require.False(t, p.allows(extra, claim(), claim()), "a token that is bound to no pod")
	}
}

func onNode(name string) map[string]any {
	return map[string]any{"authentication.kubernetes.io/node-name": []any{name}}
}
