// Plots draws the pictures of docs/benchmarks.md from the figures beside them: `make plots`.
//
//	run.json    what `lessor bench --json` printed   -> shares.svg
//	peers.json  ratios to other systems, by hand     -> peers.svg
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lessor-dev/lessor/internal/bench"
	"github.com/lessor-dev/lessor/internal/bench/chart"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: plots DIR")
	}
	plots, err := draw(args[0])
	if err != nil {
		return err
	}
	for name, svg := range plots {
		if err := os.WriteFile(filepath.Join(args[0], name), svg, 0o644); err != nil { //nolint:gosec // everybody may read the picture
			return err
		}
	}
	return nil
}

// draw returns the pictures by their names.
func draw(dir string) (map[string][]byte, error) {
	var report bench.Report
	var peers comparison
	if err := errors.Join(read(filepath.Join(dir, "run.json"), &report), read(filepath.Join(dir, "peers.json"), &peers)); err != nil {
		return nil, err
	}
	var shares, ratios bytes.Buffer
	err := errors.Join(report.Plot(&shares), chart.Write(&ratios, peers.chart()))
	return map[string][]byte{"shares.svg": shares.Bytes(), "peers.svg": ratios.Bytes()}, err
}

// read refuses fields that it does not know: a misspelled one would leave a figure out.
func read(name string, into any) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
