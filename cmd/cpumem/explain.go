// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/output"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
)

// explanation is what explain shows.
type explanation struct {
	dir, cgroups, plugin, claim string
	plan                        bool
}

func explainCommand() *cobra.Command {
	var e explanation
	var watch bool
	cmd := &cobra.Command{
		Use:   "explain [NAMESPACE/CLAIM | CLAIM-UID]",
		Short: "Show the claims on this node with their CPUs, memory, hugepages and pods",
		Long: "Shows what the frontend decided and whether the actuator has applied it, from the files in the CDI directory.\n" +
			"The exit status is 1 if a file is missing or cannot be read, if files contradict each other, or if the actuator is away.",
		Args: cobra.MaximumNArgs(1),
	}
	form := output.Flag(cmd, text)
	cmd.Flags().StringVar(&e.dir, "cdi-dir", config.Default().CDIDir, "CDI directory")
	cmd.Flags().StringVar(&e.cgroups, "cgroup-root", "/sys/fs/cgroup", "cgroup mount of the node")
	cmd.Flags().StringVar(&e.plugin, "plugin-dir", filepath.Join(config.Default().KubeletRootDir, "plugins", kubelet.DriverName),
		"the frontend's data directory, which has the counters from the start of each measurement")
	cmd.Flags().BoolVar(&e.plan, "plan", false, "with -o text, also show what nri-actuator would write into the cgroups now")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show all of it again after each change; measurements are read every ten seconds")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := form.Check(); err != nil {
			return err
		}
		if len(args) == 1 {
			e.claim = args[0]
		}
		if !watch {
			return e.show(cmd.OutOrStdout(), form)
		}
		return e.watch(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), form)
	}
	return cmd
}

// show writes the explanation once. Problems of the files are an error, too.
func (e explanation) show(w io.Writer, form *output.Forms) error {
	d, err := inspect.Read(e.dir)
	if err != nil {
		return err
	}
	d = d.Measure(inspect.Host{Sys: os.DirFS("/sys"), Proc: os.DirFS("/proc"), Cgroups: os.DirFS(e.cgroups), PluginDir: e.plugin})
	selected := d.Selected(e.claim)
	if e.claim != "" && len(selected.Claims) == 0 {
		return fmt.Errorf("%w %q on this node: want NAMESPACE/CLAIM or the claim's UID; cpumem explain lists them", errNotPrepared, e.claim)
	}
	if err := form.Write(w, selected, map[string]func(io.Writer) error{
		text: func(w io.Writer) error { return e.text(w, d) },
	}); err != nil {
		return err
	}
	if n := len(d.Problems); n > 0 {
		return fmt.Errorf("%w: %d", errProblems, n)
	}
	return nil
}

// Errors of show that do not end watch with an error.
var (
	errProblems    = errors.New("problems in the CDI directory")
	errNotPrepared = errors.New("no prepared claim")
)

func (e explanation) text(w io.Writer, d inspect.Directory) error {
	if err := d.Explain(w, e.claim); err != nil {
		return err
	}
	if err := d.ExplainProtection(w, e.claim, os.DirFS(e.cgroups), int64(os.Getpagesize())); err != nil || !e.plan {
		return err
	}
	p, err := inspect.ReadPlan(e.dir, e.cgroups, os.DirFS("/proc"))
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	p.Write(w)
	return nil
}

// watch writes the explanation after each change until ctx ends, or the claim that it shows is released.
func (e explanation) watch(ctx context.Context, w, warnings io.Writer, form *output.Forms) error {
	changes := cdidir.At(e.dir).Changes(cdidir.Watch{
		Renew:    time.Minute,
		Concerns: func(fsnotify.Event) bool { return true },
		Warn:     func(text string, err error) { fmt.Fprintf(warnings, "cpumem: %s: %v\n", text, err) },
	})
	changes.Start()
	go changes.Run(ctx)
	measure := time.NewTicker(measureInterval)
	defer measure.Stop()
	shown := ""
	for {
		var now bytes.Buffer
		err := e.show(&now, form)
		switch {
		case errors.Is(err, errNotPrepared) && shown != "":
			fmt.Fprintf(warnings, "cpumem: claim %s is released\n", e.claim)
			return nil
		case err != nil && !errors.Is(err, errProblems):
			return err
		}
		if text := now.String(); text != shown {
			if shown != "" {
				text = form.Separator() + text
			}
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
			shown = now.String()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changes.C():
		case <-measure.C:
		}
	}
}

// measureInterval is how often watch measures.
const measureInterval = 10 * time.Second
