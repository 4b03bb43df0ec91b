// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
)

func validateCommand() *cobra.Command {
	var file, values, from, dir string
	cmd := &cobra.Command{
		Use: "validate", Short: "Check a configuration file, a values file of the chart, or the files in the CDI directory", Args: cobra.NoArgs,
		Long: "With --config or --values checks the configuration, all of it at once; with --from as well whether it fits that machine.\n" +
			"Without them checks the files in the CDI directory of this node.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" && values == "" {
				if from != "" {
					return errors.New("--from needs --config or --values: cpumem inspect --from shows an archive")
				}
				return validateDirectory(cmd, dir)
			}
			what := file
			if values != "" {
				what = "the key config of " + values
			}
			c, err := config.Read(file)
			if values != "" {
				c, err = readValues(values)
			}
			if err != nil {
				return err
			}
			fits := ""
			if from != "" {
				m, err := openCapture(from)
				if err != nil {
					return about(from, err)
				}
				machine, err := inspect.ReadMachine(m.Roots, m.PageSize, c)
				if err != nil {
					return about(from, err)
				}
				fits = fmt.Sprintf(", and fits the machine of %s: %d zones", from, len(machine.Zones))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is valid%s\n", what, fits)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "check this configuration file instead of the directory")
	cmd.Flags().StringVar(&values, "values", "", "check the key config of this values file of the chart instead of the directory")
	cmd.Flags().StringVar(&from, "from", "", "archive written by cpumem capture, which the configuration has to fit")
	cmd.Flags().StringVar(&dir, "cdi-dir", config.Default().CDIDir, "CDI directory")
	cmd.MarkFlagsMutuallyExclusive("config", "values")
	return cmd
}

func validateDirectory(cmd *cobra.Command, dir string) error {
	d, err := inspect.Read(dir)
	if err != nil {
		return err
	}
	if err := d.Valid(); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %d claims\n", dir, len(d.Claims))
	return nil
}

// readValues returns the configuration of a values file. The chart's schema checks all
// other keys of the file.
func readValues(file string) (config.Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return config.Config{}, err
	}
	data, err = yaml.YAMLToJSONStrict(data)
	if err != nil {
		return config.Config{}, fmt.Errorf("%s: %w", file, err)
	}
	var values map[string]any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&values); err != nil {
		return config.Config{}, fmt.Errorf("%s: %w", file, err)
	}
	value, has := values["config"]
	if !has {
		return config.Config{}, fmt.Errorf("%s: it has no key config: the frontend's configuration is below this key", file)
	}
	text, err := asFile(value)
	if err != nil {
		return config.Config{}, fmt.Errorf("%s: %w", file, err)
	}
	c, err := config.Parse(text)
	if err = errors.Join(nulls("", value), err); err != nil {
		return config.Config{}, fmt.Errorf("config of %s: %w", file, err)
	}
	return c, nil
}

// throttlingFactor is the text that the chart's schema takes for memoryQoS.throttlingFactor.
var throttlingFactor = regexp.MustCompile(`^(1|0?\.[0-9]*[1-9][0-9]*)$`)

// asFile returns the values as the chart writes them into the frontend's configuration file. Helm's --set makes a number of "4",
// and text of 0.9: the chart takes both.
func asFile(values any) ([]byte, error) {
	keys, _ := values.(map[string]any)
	for _, key := range []string{"reservedCPUs", "managedCPUs"} {
		if n, is := keys[key].(json.Number); is {
			keys[key] = n.String()
		}
	}
	qos, _ := keys["memoryQoS"].(map[string]any)
	if text, is := qos["throttlingFactor"].(string); is && throttlingFactor.MatchString(text) {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		qos["throttlingFactor"] = f
	}
	return json.Marshal(values)
}

// nulls refuses keys without a value. Helm removes the chart's default of such a key, and the chart's schema wants a value; only
// the throttling factor may be missing.
func nulls(path string, value any) error {
	if value == nil && path != "memoryQoS.throttlingFactor" {
		return fmt.Errorf("%s: null: helm removes the chart's default then; give it a value, or leave the key out", cmp.Or(path, "config"))
	}
	keys, _ := value.(map[string]any)
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		errs = append(errs, nulls(strings.TrimPrefix(path+"."+key, "."), keys[key]))
	}
	return errors.Join(errs...)
}
