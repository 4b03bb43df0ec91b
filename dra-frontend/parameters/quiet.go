// SPDX-License-Identifier: Apache-2.0

package parameters

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/fields"
)

var (
	latencyForm   = regexp.MustCompile(LatencyForm)
	frequencyForm = regexp.MustCompile(FrequencyForm)
	governorForm  = regexp.MustCompile(GovernorForm)
)

// Interrupts are the interrupts that a claim's CPUs take: [config.Any], [config.None] or
// those of a device.
type Interrupts struct {
	// Mode is config.Any or config.None, empty with a device.
	Mode string
	// Device is a pattern of the names of interrupts.
	Device string
}

// UnmarshalJSON reads "any", "none" or {"device": "eth0-*"}.
func (i *Interrupts) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil && (text == config.Any || text == config.None) {
		*i = Interrupts{Mode: text}
		return nil
	}
	var device struct {
		Device *string `json:"device"`
	}
	if wrong := fields.Decode(data, &device); len(wrong) > 0 || device.Device == nil {
		return fmt.Errorf("%.40s, want any, none or {device: PATTERN}", data)
	}
	if err := contract.CheckPattern(*device.Device); err != nil {
		return fmt.Errorf("device: %w", err)
	}
	*i = Interrupts{Device: *device.Device}
	return nil
}

// MarshalJSON is the reverse of UnmarshalJSON.
func (i Interrupts) MarshalJSON() ([]byte, error) {
	if i.Device != "" {
		return json.Marshal(map[string]string{"device": i.Device})
	}
	return json.Marshal(i.Mode)
}

// String returns the value as users read it.
func (i Interrupts) String() string {
	if i.Device != "" {
		return "device " + i.Device
	}
	return i.Mode
}

// Latency is a time in microseconds.
type Latency int64

// LatencyForm is the form of a latency: at most 1 s, which is more than any CPU needs to
// wake up.
const LatencyForm = `^(0(us|ms|s)?|([1-9][0-9]{0,5}|1000000)us|([1-9][0-9]{0,2}|1000)ms|1s)$`

// UnmarshalJSON reads 0 or a text such as "20us".
func (l *Latency) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if !latencyForm.MatchString(text) {
		return fmt.Errorf("%.40s, want 0 to 1s as 0, 20us or 1ms", text)
	}
	d, err := time.ParseDuration(text)
	*l = Latency(d.Microseconds())
	return err
}

// String returns the latency as users read it.
func (l Latency) String() string {
	if l == 0 {
		return "0"
	}
	return strconv.FormatInt(int64(l), 10) + "us"
}

// MarshalJSON writes String.
func (l Latency) MarshalJSON() ([]byte, error) { return json.Marshal(l.String()) }

// content returns the latency as the kernel's file has it.
func (l Latency) content() string {
	if l == 0 {
		return contract.NoWakeupLatency
	}
	return strconv.FormatInt(int64(l), 10)
}

// Frequency is a frequency in kHz.
type Frequency int64

// FrequencyForm is the form of a frequency: above 0 and below 100 GHz.
const FrequencyForm = `^([1-9][0-9]{0,4}(\.[0-9]{1,3})?MHz|([1-9][0-9]?(\.[0-9]{1,6})?|0\.[1-9][0-9]{0,5})GHz)$`

// UnmarshalJSON reads a text such as "2.4GHz".
func (f *Frequency) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil || !frequencyForm.MatchString(text) {
		return fmt.Errorf("%.40s, want a frequency above 0 and below 100GHz, such as 2.4GHz or 1800MHz", data)
	}
	number, unit := text[:len(text)-3], map[string]float64{"MHz": 1e3, "GHz": 1e6}[text[len(text)-3:]]
	n, err := strconv.ParseFloat(number, 64)
	*f = Frequency(math.Round(n * unit))
	return err
}

// String returns the frequency as users read it.
func (f Frequency) String() string {
	return strconv.FormatFloat(float64(f)/1e3, 'f', -1, 64) + "MHz"
}

// MarshalJSON writes String.
func (f Frequency) MarshalJSON() ([]byte, error) { return json.Marshal(f.String()) }

// Governor is the name of a frequency governor.
type Governor string

// GovernorForm is the form of a governor's name.
const GovernorForm = `^[a-z_]{1,15}$`

// UnmarshalJSON reads a name in the kernel's form.
func (g *Governor) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil || !governorForm.MatchString(text) {
		return fmt.Errorf("%.40s, want the name of a governor, such as performance", data)
	}
	*g = Governor(text)
	return nil
}

// Quiet has the settings that keep a claim's CPUs quiet.
type Quiet struct {
	Interrupts Interrupts
	// Quota is config.QuotaKeep or config.None, Housekeeping config.Any or config.None.
	Quota, Housekeeping string
	// WakeupLatency, MinFrequency and MaxFrequency are nil, and Governor is empty, if they
	// stay as they are.
	WakeupLatency              *Latency
	MinFrequency, MaxFrequency *Frequency
	Governor                   Governor
}

// Record returns what the settings ask of the machine.
func (q Quiet) Record() contract.Quiet {
	r := contract.Quiet{
		NoInterrupts: q.Interrupts.Mode == config.None || q.Interrupts.Device != "", Device: q.Interrupts.Device,
		NoWorkQueues: q.Housekeeping == config.None,
	}
	add := func(file, content string) {
		if r.Files == nil {
			r.Files = make(map[string]string)
		}
		r.Files[file] = content
	}
	if q.WakeupLatency != nil {
		add(contract.FileWakeupLatency, q.WakeupLatency.content())
	}
	if q.Governor != "" {
		add(contract.FileGovernor, string(q.Governor))
	}
	if q.MinFrequency != nil {
		add(contract.FileMinFrequency, strconv.FormatInt(int64(*q.MinFrequency), 10))
	}
	if q.MaxFrequency != nil {
		add(contract.FileMaxFrequency, strconv.FormatInt(int64(*q.MaxFrequency), 10))
	}
	return r
}

// with returns the settings with the parameters' values.
func (q Quiet) with(p CPU) Quiet {
	set(&q.Interrupts, p.Interrupts)
	set(&q.Quota, p.Quota)
	set(&q.Housekeeping, p.Housekeeping)
	set(&q.Governor, p.Governor)
	q.WakeupLatency, q.MinFrequency, q.MaxFrequency = p.WakeupLatency, p.MinFrequency, p.MaxFrequency
	return q
}

// describe adds the settings that ask for something, field to value, for people.
func (q Quiet) describe(add func(field, value string)) {
	for field, value := range map[string]string{
		"cpu.interrupts": q.Interrupts.String(), "cpu.quota": q.Quota, "cpu.housekeeping": q.Housekeeping,
	} {
		if value != config.Any && value != config.QuotaKeep {
			add(field, value)
		}
	}
	add("cpu.governor", string(q.Governor))
	if q.WakeupLatency != nil {
		add("cpu.wakeupLatency", q.WakeupLatency.String())
	}
	if q.MinFrequency != nil {
		add("cpu.minFrequency", q.MinFrequency.String())
	}
	if q.MaxFrequency != nil {
		add("cpu.maxFrequency", q.MaxFrequency.String())
	}
}
