package main

import (
	"os"
	"strings"
	"testing"
)

// A change of a line that a mistake replaces is noticed at once, and not only when the mistakes are
// tried, which takes minutes.
func TestMistakesFitTheCode(t *testing.T) {
	t.Chdir("../..")
	page, err := os.ReadFile("docs/testing/seeded.md")
	if err != nil {
		t.Fatal(err)
	}
	mistakes, err := readAll("test/seeded/testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mistakes {
		if _, err := m.seeded(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if !strings.Contains(string(page), m.row()+"\n") {
			t.Errorf("the page has no row\n%s", m.row())
		}
	}
}
