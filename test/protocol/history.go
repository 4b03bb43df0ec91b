// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Action is a step that a history names. The names are in protocol.pml.
type Action string

// The actions.
const (
	FrontendDied     Action = "frontendDied"
	ActuatorDied     Action = "actuatorDied"
	LinkLost         Action = "linkLost"
	ActuatorStarted  Action = "actuatorStarted"
	KubeletRestarted Action = "kubeletRestarted"
	Scheduled        Action = "scheduled"
	Stopped          Action = "stopped"
	Removed          Action = "removed"
	PrepareCalled    Action = "prepareCalled"
	Answered         Action = "answered"
	NodeWritten      Action = "nodeWritten"
	ClaimWritten     Action = "claimWritten"
	ClaimRemoved     Action = "claimRemoved"
	ContainerCreated Action = "containerCreated"
	ContainerStarted Action = "containerStarted"
	// ContainerSeen is what a container has after the announced generation is the node file's.
	ContainerSeen Action = "containerSeen"
)

// Event is one step of a node.
type Event struct {
	Action Action
	// Subject is a claim's UID, or names a container.
	Subject string
	// CPUs are the file's or the container's. AllCPUs is for a container without a claim whose
	// cpuset no program wrote.
	CPUs    contract.CPUSet
	AllCPUs bool
	// Claims are the UIDs of the claims of a scheduled container.
	Claims []string
}

// History is what happened on one node, in order. The zero value is empty, and a nil
// history keeps nothing.
type History struct{ events []Event }

// Add appends an event.
func (h *History) Add(e Event) {
	if h != nil {
		h.events = append(h.events, e)
	}
}

// Len returns the number of events.
func (h *History) Len() int { return len(h.events) }

// Check returns an error unless the model allows each of the histories: an order of the
// model's steps has the history's steps, in this order.
func Check(dir, model string, histories []*History) (Found, error) {
	text, err := source(model, histories)
	if err != nil {
		return Found{}, err
	}
	// The code of many steps takes gcc longer to optimise than to run.
	found, err := search(dir, text, "-O0")
	if err != nil {
		return found, err
	}
	if found.Violated != "" {
		return found, fmt.Errorf("a history violates %s: %s", found.Violated, found.Output)
	}
	lines := strings.Split(text, "\n")
	_, unreached, reported := strings.Cut(found.Output, "unreached in proctype History")
	if !reported {
		return found, fmt.Errorf("the search does not report which steps of the history it reached: %s", found.Output)
	}
	unreached, _, _ = strings.Cut(unreached, "unreached in")
	for _, match := range regexp.MustCompile(`protocol.pml:(\d+), state`).FindAllStringSubmatch(unreached, -1) {
		n, err := strconv.Atoi(match[1])
		if err != nil {
			return found, err
		}
		if line := lines[n-1]; strings.HasPrefix(strings.TrimSpace(line), "EVENT") {
			return found, fmt.Errorf("the model does not allow the last of these steps: one of the programs, or the model, is wrong:\n%s",
				strings.Join(lines[max(0, n-15):n-1], "\n"))
		}
	}
	return found, nil
}

// prologue gives the model the bounds of the histories, and lets a history take the place of chance. The
// next event is offered when nothing else can happen. That leaves out orders that the model has, so what
// is allowed here is allowed by the model. Each pod of the model has one container.
const prologue = `#define HISTORY
#define FRONTENDS 1
#define FAULTS 0
#define CLAIMS %d
#define PODS %d
#define CPUS %d
#define SET int
#define JOINABLE(c) true
#define ENDS(p) true
#define UNSEEN false
#define NEXT(action, subject) (event == action && event_subject == (subject))
#define SEEN(action, subject, set) NEXT(action, subject) && event_set == (set); event = 0
#define any event_subject
#define TRIES(when) true
#define READY (op != prepare || event)
#define WRITES (event == nodeWritten || event == claimWritten)
#define DEATH event == frontendDied || event == actuatorDied
#define FAULT DEATH || event == linkLost || event == kubeletRestarted || event == stopped || event == removed
#define ANY(x, n) x = event_subject
#define CHOOSE_CLAIMS(set) NEXT(scheduled, p) -> set = event_set
#define CHOOSE_CPUS(set) set = event_choice
#define EVENT(action, subject, set, choice) atomic { event == 0 && timeout -> \
  event = action; event_subject = subject; event_set = set; event_choice = choice }
mtype = { answered, containerSeen }
mtype event = 0; byte event_subject; int event_set, event_choice;
`

const observer = `
active proctype Observer() {
  do :: atomic { event == containerSeen && connected && applied &&
       phase[event_subject] == running && cpus[event_subject] == event_set -> event = 0 }
  :: atomic { event == answered && call[event_subject] == idle -> event = 0 } od }
active proctype History() {
  if
`

// source returns the model with a process that takes the steps of one history.
func source(model string, histories []*History) (string, error) {
	var steps strings.Builder
	claims, pods, cpus := 1, 1, 1
	for _, h := range histories {
		n, err := h.number()
		if err != nil {
			return "", err
		}
		claims, pods, cpus = max(claims, len(n.claims)), max(pods, len(n.pods)), max(cpus, len(n.cpus))
	}
	for _, h := range histories {
		n, err := h.number()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&steps, "  :: skip;\n")
		for i, e := range h.events {
			set := n.set(e.CPUs, cpus)
			if e.AllCPUs {
				set = 1<<cpus - 1
			}
			subject := slices.Index(n.pods, e.Subject)
			switch e.Action {
			case ClaimWritten, ClaimRemoved, PrepareCalled, Answered:
				subject = slices.Index(n.claims, e.Subject)
			case Scheduled:
				for _, uid := range e.Claims {
					set |= 1 << slices.Index(n.claims, uid)
				}
			}
			fmt.Fprintf(&steps, "EVENT(%s, %d, %d, %d);\n", e.Action, max(subject, 0), set, n.set(h.choice(i), cpus))
		}
		steps.WriteString("EVENT(0, 0, 0, 0)\n")
	}
	return fmt.Sprintf(prologue, claims, pods, cpus) + model + observer + steps.String() + "  fi }\n", nil
}

// choice returns the CPUs that the frontend chose for the claim file that event i is about.
func (h *History) choice(i int) contract.CPUSet {
	var none contract.CPUSet
	for _, e := range h.events[i:] {
		switch e.Action {
		case ClaimWritten:
			return e.CPUs
		case FrontendDied:
			// The frontend died before it wrote the claim file.
			for _, before := range slices.Backward(h.events[:i]) {
				if before.Action == NodeWritten {
					return before.CPUs.Difference(h.events[i].CPUs)
				}
			}
			return none
		}
	}
	return none
}

// numbers are a history's subjects in the order of the model's. cpus are sets of CPUs that
// every event has as a whole or not at all.
type numbers struct {
	claims, pods []string
	cpus         []contract.CPUSet
}

func (h *History) number() (numbers, error) {
	var n numbers
	for _, e := range h.events {
		switch {
		case e.Action == Scheduled:
			n.pods = append(n.pods, e.Subject)
			for _, uid := range e.Claims {
				if !slices.Contains(n.claims, uid) {
					n.claims = append(n.claims, uid)
				}
			}
		case e.Action == NodeWritten && len(n.cpus) == 0:
			n.cpus = []contract.CPUSet{e.CPUs}
		case len(n.cpus) > 0 && !e.CPUs.IsSubsetOf(n.all()):
			return n, fmt.Errorf("%s of %s: CPUs %s are not in the pool of the start, %s", e.Action, e.Subject, e.CPUs, n.all())
		}
		var divided []contract.CPUSet
		for _, part := range n.cpus {
			for _, half := range []contract.CPUSet{part.Intersection(e.CPUs), part.Difference(e.CPUs)} {
				if !half.IsEmpty() {
					divided = append(divided, half)
				}
			}
		}
		n.cpus = divided
	}
	if most := 28; len(n.pods) > most || len(n.claims) > most || len(n.cpus) > most {
		return n, fmt.Errorf("%d containers, %d claims and %d sets of CPUs: a history has at most %d of each", len(n.pods), len(n.claims),
			len(n.cpus), most)
	}
	return n, nil
}

func (n numbers) all() contract.CPUSet { return contract.CPUSet{}.Union(n.cpus...) }

// set returns CPUs as a bit set of the model. The last part stands for all remaining CPUs of
// the model, which another history needs.
func (n numbers) set(cpus contract.CPUSet, all int) int {
	set := 0
	for i, part := range n.cpus {
		switch {
		case !part.IsSubsetOf(cpus):
		case i == len(n.cpus)-1:
			set |= 1<<all - 1<<i
		default:
			set |= 1 << i
		}
	}
	return set
}
