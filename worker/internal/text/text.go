// Package text checks identifiers and free text as the coordinator does. Its errors name the field
// that the caller gives.
package text

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Max is the largest size of an identifier, or of free text in a name, a label or metadata, in
// bytes.
const Max = 256

// CheckID checks an identifier; an empty one is valid.
func CheckID(field, id string) error {
	if err := Check(field, id); err != nil {
		return err
	}
	if strings.ContainsFunc(id, IsControl) {
		return fmt.Errorf("%s %q has a control character", field, id)
	}
	return nil
}

// Check checks the size and the encoding of free text.
func Check(field, text string) error {
	switch {
	case len(text) > Max:
		return fmt.Errorf("%s has %d bytes; at most %d are allowed", field, len(text), Max)
	case !utf8.ValidString(text):
		return fmt.Errorf("%s %q is not valid UTF-8", field, text)
	}
	return nil
}

// IsControl reports whether r is a control character that identifiers must not contain.
func IsControl(r rune) bool { return r < ' ' || r == 0x7f }
