package resource

import (
	"errors"
	"fmt"

	"github.com/lessor-dev/lessor/worker/internal/text"
)

// maxMetadata is the coordinator's limit for an artifact. A resource with more entries could be
// registered, but the task that names it in its result would fail.
const maxMetadata = 64 // entries

func (res *Resource) check() error {
	if res.ID == "" {
		return errors.New("resource: ID must not be empty")
	}
	if res.TTL < 0 {
		return fmt.Errorf("resource: TTL is %v; it must not be negative", res.TTL)
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

func checkID(field, id string) error { return text.CheckID("resource: "+field, id) }

func checkText(field, free string) error { return text.Check("resource: "+field, free) }
