// SPDX-License-Identifier: Apache-2.0

// Command recording writes the picture of the README from what `make demo` printed, which it reads from standard input.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/recording"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	output, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	lines, err := recording.Lines(string(output))
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, recording.SVG(lines))
	return err
}
