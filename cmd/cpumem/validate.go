// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

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
	var values map[string]json.RawMessage
	if err := json.Unmarshal(data, &values); err != nil {
		return config.Config{}, fmt.Errorf("%s: %w", file, err)
	}
	text, has := values["config"]
	if !has {
		return config.Config{}, fmt.Errorf("%s: it has no key config: the frontend's configuration is below this key", file)
	}
	c, err := config.Parse(text)
	if err != nil {
		return config.Config{}, fmt.Errorf("config of %s: %w", file, err)
	}
	return c, nil
}
