// Package text knows what the coordinator takes of identifiers and free text. Its errors name the field; the caller says of what it is.
package text

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Max is how many bytes an identifier or a free text of a name, a label or metadata may have.
const Max = 256

// CheckID checks an identifier, which may be empty.
func CheckID(field, id string) error {
	if err := Check(field, id); err != nil {
		return err
	}
	if strings.ContainsFunc(id, IsControl) {
		return fmt.Errorf("%s %q has a control character", field, id)
	}
	return nil
}

// Check checks free text.
func Check(field, text string) error {
	switch {
	case len(text) > Max:
		return fmt.Errorf("%s has %d bytes; at most %d are allowed", field, len(text), Max)
	case !utf8.ValidString(text):
		return fmt.Errorf("%s %q is not valid UTF-8", field, text)
	}
	return nil
}

// IsControl reports whether a character is one that no identifier may have.
func IsControl(r rune) bool { return r < ' ' || r == 0x7f }
