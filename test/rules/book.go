package main

import (
	"errors"
	"fmt"
	"regexp"
)

// rule is a row of docs/rules.md.
type rule struct{ id, text string }

var row = regexp.MustCompile(`(?m)^\| ([A-Z][0-9]+) \| (.+) \|$`)

// parseRules returns the rules in the order of the document.
func parseRules(document string) ([]rule, error) {
	var all []rule
	seen := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(document, -1) {
		if seen[m[1]] {
			return nil, fmt.Errorf("has two rows of %s", m[1])
		}
		seen[m[1]] = true
		all = append(all, rule{id: m[1], text: m[2]})
	}
	if len(all) == 0 {
		return nil, errors.New("has no row of a rule")
	}
	return all, nil
}
