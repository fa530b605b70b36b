package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// caught runs the tests with the mistake; it returns an error if they do not fail.
func (m *mistake) caught() error {
	dir, err := os.MkdirTemp("", "seeded")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(dir)
	if err != nil {
		return err
	}
	failed, err := m.fails(overlay, m.pkg, m.test)
	switch {
	case err != nil:
		return err
	case !failed:
		return fmt.Errorf("%s does not notice it", m.test)
	case !m.exhaustive:
		return nil
	}
	found, err := m.fails(overlay, "./test/exhaustive", "TestEveryState")
	if err == nil && !found {
		return errors.New("the exhaustive check does not find it")
	}
	return err
}

func (m *mistake) overlay(dir string) (string, error) {
	text, err := m.seeded()
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	wrong, list := filepath.Join(dir, "wrong.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: wrong}})
	if err != nil {
		return "", err
	}
	return list, errors.Join(os.WriteFile(wrong, []byte(text), 0o600), os.WriteFile(list, replace, 0o600))
}

// fails reports whether the test fails. It is an error if the code does not compile, or the test
// does not exist.
func (m *mistake) fails(overlay, pkg, test string) (bool, error) {
	args := []string{
		"test", "-vet=off", "-count=1", "-timeout=60s", "-overlay", overlay, "-ldflags=-s -w",
		"-run", "^" + test + "$", "-v",
	}
	// The packages that are compiled only for this mistake are not optimized, because the test runs
	// only for a moment.
	args = append(args, "-gcflags=./"+filepath.Dir(m.file)+"=-N -l", "-gcflags="+m.pkg+"=-N -l", pkg)
	out, err := exec.Command("go", args...).CombinedOutput()
	began := strings.Contains(string(out), "=== RUN   "+test+"\n")
	if !began {
		return false, fmt.Errorf("%s of %s did not run:\n%s", test, pkg, out)
	}
	return err != nil, nil
}
