// SPDX-License-Identifier: Apache-2.0

package why

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/allocation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/fields"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// request is a request of a claim, or a subrequest of one.
type request struct {
	// name is the claim's namespace and name, and the request, with the subrequest if
	// it is an alternative. whole is the name without the subrequest.
	name, whole string
	claim       *resourceapi.ResourceClaim
	// selectors are the class's and the request's.
	selectors   []selector
	tolerations []resourceapi.DeviceToleration
	amounts     map[resourceapi.QualifiedName]resource.Quantity
	admin       bool
}

// selector is a CEL expression with the object that has it.
type selector struct {
	of         string
	expression string
	compiled   cel.CompilationResult
}

// requestsOf returns the requests of the claims, each alternative of a request as one
// of its own. An error concerns all nodes.
func requestsOf(classes []*resourceapi.DeviceClass, claims []*resourceapi.ResourceClaim) (out []request, err error) {
	for _, c := range claims {
		for _, r := range c.Spec.Devices.Requests {
			whole := fmt.Sprintf("%s/%s %s", c.Namespace, c.Name, r.Name)
			if r.Exactly != nil {
				one, err := requestOf(classes, c, whole, *r.Exactly)
				if err != nil {
					return nil, err
				}
				one.whole = whole
				out = append(out, one)
			}
			for _, sub := range r.FirstAvailable {
				one, err := requestOf(classes, c, whole+"/"+sub.Name, resourceapi.ExactDeviceRequest{
					DeviceClassName: sub.DeviceClassName, Selectors: sub.Selectors, Tolerations: sub.Tolerations, Capacity: sub.Capacity,
				})
				if err != nil {
					return nil, err
				}
				one.whole = whole
				out = append(out, one)
			}
		}
	}
	return out, nil
}

func requestOf(
	classes []*resourceapi.DeviceClass, c *resourceapi.ResourceClaim, name string, exact resourceapi.ExactDeviceRequest,
) (request, error) {
	one := request{name: name, claim: c, tolerations: exact.Tolerations, admin: exact.AdminAccess != nil && *exact.AdminAccess}
	if exact.Capacity != nil {
		one.amounts = exact.Capacity.Requests
	}
	i := slices.IndexFunc(classes, func(class *resourceapi.DeviceClass) bool { return class.Name == exact.DeviceClassName })
	if i < 0 {
		return one, fmt.Errorf("%s: there is no DeviceClass %s%s", name, exact.DeviceClassName, proposal(exact.DeviceClassName, classes))
	}
	if err := one.add("DeviceClass "+classes[i].Name, classes[i].Spec.Selectors); err != nil {
		return one, err
	}
	return one, one.add("the request", exact.Selectors)
}

func proposal(name string, classes []*resourceapi.DeviceClass) string {
	var known []string
	for _, c := range classes {
		known = append(known, c.Name)
	}
	if like, found := fields.Closest(name, known); found {
		return fmt.Sprintf(": did you mean %s?", like)
	}
	return ""
}

func (r *request) add(of string, selectors []resourceapi.DeviceSelector) error {
	for _, s := range selectors {
		if s.CEL == nil {
			continue
		}
		compiled := cel.GetCompiler(allocation.Selectors()).CompileCELExpression(s.CEL.Expression, cel.Options{DisableCostEstimation: true})
		if compiled.Error != nil {
			return fmt.Errorf("%s: selector of %s: %s", r.name, of, contract.Excerpt(compiled.Error.Error(), maxQuote))
		}
		r.selectors = append(r.selectors, selector{of: of, expression: s.CEL.Expression, compiled: compiled})
	}
	return nil
}

// maxQuote bounds the text of a claim in a reason, in bytes.
const maxQuote = 300

// ours reports whether the request is for zones: whether a selector of its class or of
// its own names this driver.
func (r request) ours() bool {
	return slices.ContainsFunc(r.selectors, func(s selector) bool { return strings.Contains(s.expression, driver) })
}

// against returns the first reason that the zone cannot serve the request, empty if it
// can.
func (r request) against(ctx context.Context, z cluster.Zone) string {
	if r.admin {
		return "the request has adminAccess, which this driver refuses"
	}
	for _, s := range r.selectors {
		if reason := s.against(ctx, z); reason != "" {
			return reason
		}
	}
	for _, taint := range z.Device.Taints {
		if taint.Effect == resourceapi.DeviceTaintEffectNone {
			continue
		}
		if !slices.ContainsFunc(r.tolerations, func(t resourceapi.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, taint) }) {
			return fmt.Sprintf("taint %s, which the request does not tolerate", cluster.Taint(taint))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.amounts)) {
		if reason := lacks(z, name, r.amounts[name]); reason != "" {
			return reason
		}
	}
	return ""
}

// lacks returns why the zone cannot serve the amount.
func lacks(z cluster.Zone, name resourceapi.QualifiedName, wanted resource.Quantity) string {
	c, has := z.Capacity(string(name))
	if !has {
		return fmt.Sprintf("it has no capacity %s", name)
	}
	rounded := roundUp(wanted, z.Device.Capacity[name].RequestPolicy)
	want := wanted.String()
	if rounded.CmpInt64(math.MaxInt64) < 0 {
		want = exact(name, rounded.Value())
	}
	if rounded.Cmp(wanted) != 0 {
		want += fmt.Sprintf(" (rounded up from %s)", wanted.String())
	}
	switch {
	case rounded.CmpInt64(c.Total) > 0:
		return fmt.Sprintf("%s: %s wanted, the whole zone has %s", name, want, exact(name, c.Total))
	case rounded.CmpInt64(c.Free()) > 0:
		return fmt.Sprintf("%s: %s wanted, %s of %s free", name, want, exact(name, max(0, c.Free())), exact(name, c.Total))
	}
	return ""
}

// roundUp returns the amount that the scheduler grants. An amount near the largest int64 or
// above is returned as it is: no zone has it, and its Value would be wrong.
func roundUp(wanted resource.Quantity, policy *resourceapi.CapacityRequestPolicy) resource.Quantity {
	step := int64(1)
	if policy != nil && policy.ValidRange != nil && policy.ValidRange.Step != nil {
		step = max(step, policy.ValidRange.Step.Value())
	}
	if wanted.CmpInt64(math.MaxInt64-step) > 0 {
		return wanted
	}
	return *resource.NewQuantity((wanted.Value()+step-1)/step*step, wanted.Format)
}

// exact writes all digits of an amount: rounded amounts could look alike.
func exact(name resourceapi.QualifiedName, n int64) string {
	format := resource.BinarySI
	if name == zones.CapacityCPU {
		format = resource.DecimalSI
	}
	return resource.NewQuantity(n, format).String()
}

// unknown returns errors for the amounts that no zone has.
func (r request) unknown(known map[string]bool) (errs []error) {
	all := slices.Sorted(maps.Keys(known))
	for _, name := range slices.Sorted(maps.Keys(r.amounts)) {
		if known[string(name)] {
			continue
		}
		text := fmt.Sprintf("%s: no zone has a capacity %s", r.name, name)
		if like, found := fields.Closest(string(name), all); found {
			text += fmt.Sprintf(": did you mean %s?", like)
		} else {
			text += ": there are " + strings.Join(all, ", ")
		}
		errs = append(errs, fmt.Errorf("%s", text))
	}
	return errs
}

// against returns why the selector does not take the zone.
func (s selector) against(ctx context.Context, z cluster.Zone) string {
	matches, _, err := s.compiled.DeviceMatches(ctx, cel.Device{
		Driver: driver, AllowMultipleAllocations: z.Device.AllowMultipleAllocations,
		Attributes: z.Device.Attributes, Capacity: z.Device.Capacity,
	})
	switch {
	case err != nil:
		return fmt.Sprintf("the selector of %s fails: %s", s.of, contract.Excerpt(err.Error(), maxQuote))
	case !matches:
		return fmt.Sprintf("the selector of %s does not take it: %s", s.of, contract.Excerpt(s.expression, maxQuote))
	}
	return ""
}
