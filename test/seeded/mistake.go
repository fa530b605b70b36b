package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mistake is a line of the code, and the wrong line that replaces it.
type mistake struct {
	name       string
	file       string
	old, wrong string
	rule       string
	pkg, test  string // the test that must fail
	exhaustive bool   // the small scopes of test/exhaustive must fail, too
}

func readAll(dir string) ([]mistake, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no mistakes in %s: %w", dir, err)
	}
	all := make([]mistake, len(files))
	for i, file := range files {
		if all[i], err = read(file); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return all, nil
}

func read(file string) (m mistake, err error) {
	text, err := os.ReadFile(file)
	m.name = strings.TrimSuffix(filepath.Base(file), ".txt")
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "file":
			m.file = rest
		case "-":
			m.old = rest
		case "+":
			m.wrong = rest
		case "rule":
			m.rule = rest
		case "test":
			m.pkg, m.test, _ = strings.Cut(rest, " ")
		case "exhaustive":
			m.exhaustive = true
		default:
			return m, fmt.Errorf("begins a line with %q", word)
		}
	}
	if m.test == "" {
		return m, errors.New("names no test")
	}
	return m, err
}

// row returns the row of the page's table.
func (m *mistake) row() string {
	also := ""
	if m.exhaustive {
		also = "yes"
	}
	return fmt.Sprintf("| %s | %s | `%s` | %s | %s |", m.name, m.rule, m.file, m.test, also)
}

// seeded returns the file's text with the mistake.
func (m *mistake) seeded() (string, error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	lines := strings.Split(string(text), "\n")
	found := 0
	for i, line := range lines {
		if strings.TrimSpace(line) == m.old {
			lines[i] = m.wrong
			found++
		}
	}
	if found != 1 {
		return "", fmt.Errorf("%s has the line %d times, and must have it once: %s", m.file, found, m.old)
	}
	return strings.Join(lines, "\n"), nil
}
