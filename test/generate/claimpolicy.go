// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// check is a validation of an admission policy.
type check struct {
	Expression        string `json:"expression"`
	Message           string `json:"message"`
	MessageExpression string `json:"messageExpression,omitempty"`
}

// claimPolicy returns the variables and validations of the admission policy for
// claims, templates and DeviceClasses. The names and values of parameters follow from
// the Go types. The chart adds the variable classes, the names of the driver's
// DeviceClasses.
func claimPolicy() ([]byte, error) {
	policy := struct {
		Variables []struct {
			Name       string `json:"name"`
			Expression string `json:"expression"`
		} `json:"variables"`
		Validations []check `json:"validations"`
	}{}
	variable := func(name, expression string) {
		policy.Variables = append(policy.Variables, struct {
			Name       string `json:"name"`
			Expression string `json:"expression"`
		}{name, expression})
	}
	// A template has the claim's spec in its own.
	variable("spec", `has(object.spec.spec) ? object.spec.spec : object.spec`)
	variable("requests", `variables.spec.?devices.?requests.orValue([])`)
	variable("exact", `variables.requests.filter(r, has(r.exactly) && r.exactly.deviceClassName in variables.classes)`)
	variable("asked", `variables.exact.map(r, r.exactly.?capacity.?requests.orValue({}))`)
	// Of each request the list of what its alternatives ask for.
	variable("alternatives", `variables.requests.map(r, r.?firstAvailable.orValue([])`+
		`.filter(s, s.deviceClassName in variables.classes).map(s, s.?capacity.?requests.orValue({})))`)
	// A DeviceClass has its configuration in its spec.
	variable("configs", `(variables.spec.?devices.?config.orValue([]) + variables.spec.?config.orValue([]))`+
		`.filter(c, c.?opaque.?driver.orValue("") == "dra.cpumem")`)
	variable("parameters", `variables.configs.map(c, c.opaque.parameters)`)

	policy.Validations = slices.Concat(capacityChecks(), parameterChecks(), limitChecks())
	data, err := yaml.Marshal(policy)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{[]byte("# Generated from dra-frontend/parameters.\n"), data}, nil), nil
}

// capacityChecks are about what requests ask for.
func capacityChecks() []check {
	// all is true if the condition, about the capacity c of a request, is true for all
	// requests for the driver's classes.
	all := func(condition string) string {
		return fmt.Sprintf(`variables.asked.all(c, %[1]s) && variables.alternatives.all(a, a.all(c, %[1]s))`, condition)
	}
	const known = `(k in ["cpu", "memory"] || k.matches("^hugepages_[1-9][0-9]*(Ki|Mi|Gi)$"))`
	// Amounts are compared as text: the API server has parsed them, and computing with a
	// large exponent takes minutes.
	return []check{
		{
			Expression: all(`c.all(k, ` + known + `)`),
			Message:    "capacity.requests: want cpu, memory or hugepages_SIZE such as hugepages_2Mi; no zone has another capacity",
			MessageExpression: named(`variables.asked.map(c, c.filter(k, !`+known+`))`, "capacity.requests: no zone has ",
				"; want cpu, memory or hugepages_SIZE such as hugepages_2Mi"),
		},
		{
			Expression: all(`!("cpu" in c) || c["cpu"].matches("^[0-9]+([kM]|e[0-9])?$")`),
			Message:    "capacity.requests.cpu: want a whole number of CPUs, such as 2: a claim has whole CPUs alone",
		},
		{
			Expression: all(`c.exists(k, c[k].matches("^[0-9.]*[1-9]"))`),
			Message:    "capacity.requests: want an amount above 0 of cpu, memory or hugepages_SIZE; a capacity that is not named is not given",
		},
		{
			Expression: `!variables.exact.exists(r, r.exactly.?adminAccess.orValue(false))`,
			Message:    "adminAccess: the driver has none to give, because it would pin a container to CPUs that other claims hold",
		},
	}
}

// named returns an expression for a message with the names of lists, cut off. It is
// empty without names: the static message is used then.
func named(lists, before, after string) string {
	return fmt.Sprintf(`%[1]s.exists(l, l.size() > 0) ? %[2]q + %[1]s.filter(l, l.size() > 0).map(l, `+
		`l.map(k, k.size() > 40 ? k.substring(0, 40) : k).join(", ")).join(", ") + %[3]q : ""`, lists, before, after)
}

// parameterChecks are about the fields and values of the claim parameters.
func parameterChecks() []check {
	var groups []string
	choices := make(map[string][]string)
	for _, c := range parameters.Choices() {
		choices[c.Field] = c.Values
	}
	var of []check
	for group := range reflect.TypeFor[parameters.ClaimParameters]().Fields() {
		name := jsonName(group)
		groups = append(groups, name)
		if group.Type.Kind() != reflect.Struct {
			continue
		}
		var fields []string
		for field := range group.Type.Fields() {
			fields = append(fields, jsonName(field))
			of = append(of, valueCheck(name+"."+jsonName(field), field.Type.Elem(), choices[name+"."+jsonName(field)]))
		}
		of = append(of, keysCheck(name, `!has(p.`+name+`) || p.`+name+` == null || `, `p.`+name, fields))
	}
	return append([]check{
		{
			Expression: fmt.Sprintf(`variables.parameters.all(p, p.?apiVersion.orValue("") == %q && p.?kind.orValue("") == %q)`,
				parameters.APIVersion, parameters.Kind),
			Message: fmt.Sprintf("parameters: want apiVersion %s and kind %s", parameters.APIVersion, parameters.Kind),
		},
		keysCheck("parameters", "", "p", groups),
	}, of...)
}

// keysCheck refuses other keys of an object than the known.
func keysCheck(name, unless, object string, known []string) check {
	list := quotedList(known)
	return check{
		Expression: fmt.Sprintf(`variables.parameters.all(p, %stype(%s) == map && %[2]s.all(k, k in %[3]s))`, unless, object, list),
		Message:    fmt.Sprintf("%s: want an object with no other fields than %s", name, strings.Join(known, ", ")),
		MessageExpression: named(fmt.Sprintf(`variables.parameters.map(p, (%s).filter(k, !(k in %s)))`, orEmpty(unless, object), list),
			name+": unknown field ", ", want "+strings.Join(known, ", ")),
	}
}

// orEmpty is the object, or an object without fields where it is left out.
func orEmpty(unless, object string) string {
	if unless == "" {
		return object
	}
	return strings.Replace(object, ".", ".?", 1) + ".orValue({})"
}

// valueCheck refuses values of a field that the frontend refuses.
func valueCheck(path string, kind reflect.Type, choices []string) check {
	value := "p." + path
	condition, want := "", ""
	switch {
	case choices != nil:
		condition, want = value+" in "+quotedList(choices), "want "+strings.Join(choices, ", ")
	case kind.Kind() == reflect.Bool:
		condition, want = "type("+value+") == bool", "want true or false"
	case kind.Kind() == reflect.Float64:
		condition = fmt.Sprintf("(type(%[1]s) == int || type(%[1]s) == double) && double(%[1]s) > 0.0 && double(%[1]s) <= 1.0", value)
		want = "want a number above 0 and at most 1"
	case kind == reflect.TypeFor[parameters.Limit]():
		condition = isOneOf(value, "string", "int", "double") + fmt.Sprintf(` && string(%[1]s).matches(%[2]s) && `+
			`(string(%[1]s) == "unlimited" || quantity(string(%[1]s)).isGreaterThan(quantity("0")) && `+
			`quantity(string(%[1]s)).compareTo(quantity("4Ei")) <= 0)`, value, strconv.Quote(limitForm))
		want = "want a quantity above 0 and at most 4Ei, such as 12Gi, or unlimited"
	case kind == reflect.TypeFor[parameters.Interrupts]():
		condition = fmt.Sprintf(`(type(%[1]s) == string && %[1]s in ["any", "none"] || type(%[1]s) == map && %[1]s.all(k, k == "device") && `+
			`has(%[1]s.device) && type(%[1]s.device) == string && %[1]s.device.matches(%[2]s) && %[1]s.device.size() <= %[3]d)`,
			value, strconv.Quote(contract.PatternForm), contract.MaxPattern)
		want = "want any, none or {device: PATTERN}"
	case kind == reflect.TypeFor[parameters.Latency]():
		condition = isOneOf(value, "string", "int") + fmt.Sprintf(` && string(%s).matches(%s)`, value, strconv.Quote(parameters.LatencyForm))
		want = "want 0 to 1s as 0, 20us or 1ms"
	case kind == reflect.TypeFor[parameters.Frequency]():
		condition = fmt.Sprintf("type(%[1]s) == string && %[1]s.matches(%[2]s)", value, strconv.Quote(parameters.FrequencyForm))
		want = "want a frequency such as 2.4GHz or 1800MHz"
	case kind == reflect.TypeFor[parameters.Governor]():
		condition = fmt.Sprintf("type(%[1]s) == string && %[1]s.matches(%[2]s)", value, strconv.Quote(parameters.GovernorForm))
		want = "want the name of a governor, such as performance"
	default:
		panic("the field " + path + " has a type that the policy cannot check")
	}
	group, _, _ := strings.Cut(path, ".")
	return check{
		// null is an absent value, as in the frontend.
		Expression: fmt.Sprintf(`variables.parameters.all(p, !has(p.%[1]s) || p.%[1]s == null || !has(%[2]s) || %[2]s == null || %[3]s)`,
			group, value, condition),
		Message: path + ": " + want,
	}
}

// isOneOf is true for a value of one of the types. A list of types has one type in CEL.
func isOneOf(value string, types ...string) string {
	conditions := make([]string, len(types))
	for i, t := range types {
		conditions[i] = fmt.Sprintf("type(%s) == %s", value, t)
	}
	return "(" + strings.Join(conditions, " || ") + ")"
}

// limitChecks are about values that depend on more than themselves.
func limitChecks() []check {
	limited := func(config string) string {
		return strings.ReplaceAll(`has(C.opaque.parameters.memory) && C.opaque.parameters.memory != null && `+
			`has(C.opaque.parameters.memory.limit) && C.opaque.parameters.memory.limit != null`, "C", config)
	}
	const limit = `string(c.opaque.parameters.memory.limit)`
	const all = `c.?requests.orValue([]).size() == 0`
	// named is true if a configuration has a limit for the request of that name.
	named := func(name string) string {
		return `variables.configs.exists(o, o.?requests.orValue([]).exists(q, q == ` + name + `) && ` + limited("o") + `)`
	}
	// A limit for the alternative decides before one for its request, and that before one
	// for all requests.
	const alternative = `r.name + "/" + s.name`
	concernsRequest := `(r.name in c.?requests.orValue([]) || ` + all + ` && !` + named("r.name") + `)`
	concernsAlternative := `(` + alternative + ` in c.?requests.orValue([]) || !` + named(alternative) + ` && ` + concernsRequest + `)`
	// Neither amount has an exponent: computing with a large one takes minutes.
	const amount = `"^[0-9]{1,19}(\\.[0-9]{1,9})?([kMGTPE]|[KMGTPE]i)?$"`
	// below is the check of what asks, a request or an alternative.
	below := func(asks, concerns string) string {
		return strings.ReplaceAll(`!`+concerns+` || !A.?capacity.?requests["memory"].orValue("-").matches(`+amount+`) || `+
			`quantity(`+limit+`).compareTo(quantity(A.capacity.requests["memory"])) >= 0`, "A", asks)
	}
	return []check{
		{
			Expression: `variables.configs.all(c, !(` + limited("c") + `) || !` + limit + `.matches(` + amount + `) || ` +
				`variables.exact.all(r, ` + below("r.exactly", concernsRequest) + `) && ` +
				`variables.requests.all(r, r.?firstAvailable.orValue([]).all(s, !(s.deviceClassName in variables.classes) || ` +
				below("s", concernsAlternative) + `)))`,
			Message: "memory.limit is below the claimed memory: raise the limit, or leave it out",
		},
		{
			Expression: `request.resource.resource == "deviceclasses" || variables.parameters.all(p, ` +
				`!has(p.hugepages) || p.hugepages == null || p.hugepages.?limits.orValue("") != "unlimited")`,
			Message: "hugepages.limits: unlimited is not a claim's to ask for, because its container could take the pages of other claims; " +
				"a DeviceClass may have it",
		},
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func quotedList(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(v)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
