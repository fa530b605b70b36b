package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: seeded PAGE")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	mistakes, err := readAll("test/seeded/testdata")
	if err != nil {
		return err
	}
	var faults []error
	for _, m := range mistakes {
		if !strings.Contains(string(text), m.row()+"\n") {
			faults = append(faults, fmt.Errorf("%s has no row\n%s", page, m.row()))
		}
		if err := m.caught(); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", m.name, err))
			continue
		}
		fmt.Printf("%-24s caught by %s\n", m.name, m.test)
	}
	if len(faults) == 0 {
		fmt.Printf("%d mistakes, all caught\n", len(mistakes))
	}
	return errors.Join(faults...)
}
