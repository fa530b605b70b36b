package main

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// keyCmd is lessor key.
type keyCmd struct {
	List   keyListCmd   `cmd:"" help:"List the keys that sign the tokens of the tenant."`
	Rotate keyRotateCmd `cmd:"" help:"Sign with a new key from now on."`
}

// keyListCmd is lessor key list.
type keyListCmd struct {
	server `embed:""`
}

func (c keyListCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		all, err := cl.auth.ListKeys(a.ctx, &lessorv1.ListKeysRequest{})
		if err != nil {
			return err
		}
		list := newListing(a, "KEY", "STATE", "TOKENS", "AGE", "RETIRES")
		for _, k := range all.GetKeys() {
			if err := list.add(k, k.GetKeyId(), keyState(k, time.Now()), fmt.Sprint(k.GetTokens()), age(k.GetCreatedAt()), clock(k.GetRetiresAt())); err != nil {
				return err
			}
		}
		return list.flush()
	})
}

// keyState says what a key does.
func keyState(k *lessorv1.SigningKey, now time.Time) string {
	switch {
	case k.GetSigning():
		return "signs"
	case k.GetRetiresAt().AsTime().After(now):
		return "verifies"
	}
	return "retired"
}

// keyRotateCmd is lessor key rotate.
type keyRotateCmd struct {
	server      `embed:""`
	RetireAfter *time.Duration `placeholder:"DURATION" help:"How long tokens of older keys stay valid at most; 0s ends them at once. By default until the last of them has expired."`
}

// Help is shown below the flags.
func (keyRotateCmd) Help() string {
	return `Prints the id of the new key. Tokens of older keys stay good meanwhile.

Examples:
  lessor key rotate                      # regularly
  lessor key rotate --retire-after 1h    # have new tokens in use by then
  lessor key rotate --retire-after 0s    # a key has leaked; the caller's own token ends, too`
}

func (c keyRotateCmd) Run(a *app) error {
	req := &lessorv1.RotateKeyRequest{}
	if c.RetireAfter != nil {
		req.RetireAfter = durationpb.New(*c.RetireAfter)
	}
	return c.with(a, func(cl *client) error {
		made, err := cl.auth.RotateKey(a.ctx, req)
		if err != nil {
			return err
		}
		id := made.GetKey().GetKeyId()
		return unheard(a.answer(made, id), "", "the key was rotated to %s", id)
	})
}
