package resource

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// What the coordinator takes of an artifact: a resource that has more could be registered, but the task that names it in its result would fail.
const (
	maxText     = 256 // bytes
	maxMetadata = 64  // entries
)

func (res *Resource) check() error {
	if res.ID == "" {
		return errors.New("resource: ID is empty")
	}
	if len(res.Metadata) > maxMetadata {
		return fmt.Errorf("resource: Metadata has %d entries; at most %d are allowed", len(res.Metadata), maxMetadata)
	}
	for key, value := range res.Metadata {
		if key == "" {
			return errors.New("resource: Metadata has an empty key")
		}
		if err := errors.Join(checkText("Metadata", key), checkText("Metadata", value)); err != nil {
			return err
		}
	}
	return errors.Join(checkID("ID", res.ID), checkID("Type", res.Type))
}

func checkID(field, id string) error {
	if strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("resource: %s %q has a control character", field, id)
	}
	return checkText(field, id)
}

func checkText(field, text string) error {
	switch {
	case len(text) > maxText:
		return fmt.Errorf("resource: %s has %d bytes; at most %d are allowed", field, len(text), maxText)
	case !utf8.ValidString(text):
		return fmt.Errorf("resource: %s %q is not valid UTF-8", field, text)
	}
	return nil
}
