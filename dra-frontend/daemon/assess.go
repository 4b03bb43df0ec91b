// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"maps"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// assessment is what follows from an observation.
type assessment struct {
	// devices are the devices to publish, less the amounts of displaced claims:
	// claims with a device that is not offered.
	devices   []resourceapi.Device
	displaced []contract.ClaimRecord
	// uses has what the claims hold of each published zone.
	uses []zones.Use
	// health has the parts of claims that the machine lacks, and lost partitions.
	health health.Report
	// quiet has the conditions of claims whose CPUs are to be quiet.
	quiet map[contract.Key]health.Quiet
	// problems has the problem of each device by name, empty for a healthy
	// device. The devices are the published devices and the devices of unhealthy
	// claims.
	problems map[string]string
	// invalidPartitions has a sentence about each claim with an invalid partition, by
	// the claim's name.
	invalidPartitions map[string]string
	// faults has why the node takes no new claims, and why its slices are
	// outdated, by reason.
	faults map[string]error
	// allProtected reports whether all claims have their memory protection.
	allProtected bool
}

// assess is pure.
func assess(o observation, c config.Config) assessment {
	report := health.Check(o.machine, o.claims, o.announced.invalidPartitions)
	offered := o.divided.Offer(o.claims)
	devices := resourceslices.Devices(offered, resourceslices.OptionsOf(c, o.divided.Machine.PageSize, taints(o)))
	return assessment{
		devices: devices, uses: o.divided.Uses(offered, o.claims),
		displaced: o.divided.Displaced(o.claims), health: report,
		quiet: health.CheckQuiet(o.claims, health.QuietFacts{
			Fixed: o.announced.fixedInterrupts, Faults: o.announced.machineFaults, Irqbalance: o.irqbalance, Receipts: o.receipts,
		}),
		problems:          problems(devices, o.claims, report, o.actuatorFault),
		invalidPartitions: invalidPartitions(o), faults: faults(o), allProtected: allProtected(o),
	}
}

// Reasons why a node takes no new claims, for metrics and events.
const (
	reasonNodeUnfit = "NodeUnfit"
	reasonBlocked   = "ClaimFilesUnreadable"
	reasonActuator  = "ActuatorUnavailable"
	reasonEmpty     = "NothingToOffer"
)

func refusalReasons() []string {
	return []string{reasonNodeUnfit, reasonBlocked, reasonActuator, reasonEmpty}
}

// reasonSlices is the reason of the event about slices that the API server does
// not take.
const reasonSlices = "SlicesNotWritten"

var errEmpty = errors.New("no zone of this node has anything to offer: look at reservedCPUs, managedCPUs, reservedMemory, " +
	"memoryTypes and sharedPool.minCPUs of the configuration, and in the log at what is left out")

func faults(o observation) map[string]error {
	found := map[string]error{
		reasonNodeUnfit: o.unfit(), reasonBlocked: o.blocked, reasonActuator: o.actuatorFault, reasonSlices: o.slicesFault,
	}
	if len(o.divided.Zones) == 0 {
		found[reasonEmpty] = errEmpty
	}
	maps.DeleteFunc(found, func(_ string, err error) bool { return err == nil })
	return found
}

// taints returns the taints that keep new pods off a node where claims cannot
// be prepared.
func taints(o observation) []resourceapi.DeviceTaint {
	var out []resourceapi.DeviceTaint
	if o.actuatorFault != nil {
		out = append(out, resourceapi.DeviceTaint{
			Key: kubelet.DriverName + "/actuator", Value: "unavailable", Effect: resourceapi.DeviceTaintEffectNoSchedule,
		})
	}
	// Each key may occur once among a device's taints.
	value := ""
	switch {
	case o.unfit() != nil:
		value = "unfit"
	case o.blocked != nil:
		value = "blocked"
	default:
		return out
	}
	return append(out, resourceapi.DeviceTaint{
		Key: kubelet.DriverName + "/node", Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule,
	})
}

// problems returns what is wrong with each device that is published or that a claim has, empty for nothing. A
// device that lost all its capacity to the reserve is not published, and kubelet still asks about it.
func problems(devices []resourceapi.Device, claims []contract.ClaimRecord, report health.Report, actuator error) map[string]string {
	problems := maps.Clone(report.Devices)
	for _, d := range devices {
		problems[d.Name] += ""
	}
	for _, c := range claims {
		for _, r := range c.Results {
			problems[r.Device] += ""
		}
	}
	if actuator == nil {
		return problems
	}
	for name, problem := range problems {
		if problem != "" {
			problem = "; " + problem
		}
		problems[name] = actuator.Error() + problem
	}
	return problems
}

func invalidPartitions(o observation) map[string]string {
	invalid := make(map[string]string)
	for _, c := range o.claims {
		if reason, found := o.announced.invalidPartitions[c.UID]; found {
			invalid[c.Namespace+"/"+c.Name] = fmt.Sprintf("claim %s/%s (%.80q)", c.Namespace, c.Name, reason)
		}
	}
	return invalid
}

func allProtected(o observation) bool {
	for _, f := range o.protection {
		if f.Status != metav1.ConditionTrue {
			return false
		}
	}
	return true
}
