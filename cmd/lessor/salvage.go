package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/salvage"
)

// salvageCmd is lessor salvage.
type salvageCmd struct {
	Data string `type:"file" required:"" placeholder:"PATH" help:"Data directory of a coordinator that is not running, or a file that lessor backup wrote."`
	To   string `type:"file" required:"" placeholder:"DIR" help:"Directory of the new store; it must be empty or missing."`
}

// Help is shown below the flags.
func (salvageCmd) Help() string {
	return `Makes a new store of everything in a damaged one that can be read, for lessor serve --data DIR, and says what it leaves out. The damaged store is not
changed: keep it. A task is kept as it was, or left out; one is left out if its specification, state, lease, output or checkpoint is damaged.
Indexes and counts are made anew. The new store is verified, and begins a new epoch, as after lessor restore: leases that were open end at the
first start, which does not count as a loss.

Exit code 0 means that nothing was left out, 1 that the store was made and something was left out, 5 that none was made.

Example:
  lessor salvage --data /var/lib/lessor --to /var/lib/lessor.new`
}

// maxListed is how many left-out things lessor salvage lists.
const maxListed = 100

// leftOut is one line of lessor salvage --json.
type leftOut struct {
	Kind           string `json:"kind"`
	TaskID         string `json:"task_id,omitempty"`
	State          string `json:"state,omitempty"`
	Queue          string `json:"queue,omitempty"`
	RunID          string `json:"run_id,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	Tenant         string `json:"tenant,omitempty"`
	Workspace      string `json:"workspace,omitempty"`
	Name           string `json:"name,omitempty"`
	Reason         string `json:"reason"`
}

func leftOutOf(i salvage.Item) leftOut {
	out := leftOut{
		Kind: i.Kind, State: i.State, Queue: i.Queue, RunID: i.RunID, IdempotencyKey: i.IdempotencyKey,
		Tenant: i.Tenant, Workspace: i.Workspace, Name: i.Name, Reason: i.Reason,
	}
	if i.Task != (lease.TaskID{}) {
		out.TaskID = i.Task.String()
	}
	return out
}

func (l leftOut) String() string {
	what := []string{l.Kind}
	for _, part := range []struct{ before, value string }{
		{"", l.TaskID},
		{"", l.Name},
		{"", l.State},
		{"queue ", l.Queue},
		{"run ", l.RunID},
		{"key ", l.IdempotencyKey},
		{"workspace ", l.Workspace},
		{"tenant ", l.Tenant},
	} {
		if part.value != "" {
			what = append(what, part.before+part.value)
		}
	}
	return strings.Join(what, ", ") + ": " + l.Reason
}

// salvaged is the last line of lessor salvage.
type salvaged struct {
	Data    string            `json:"data"`
	To      string            `json:"to"`
	Format  uint32            `json:"format"`
	Epoch   uint32            `json:"epoch"`
	Tasks   uint64            `json:"tasks"`
	States  map[string]uint64 `json:"tasks_by_state"`
	Leases  uint64            `json:"leases"`
	LeftOut uint64            `json:"tasks_left_out"`
	Unknown bool              `json:"tasks_uncounted,omitempty"` // more may be left out
	// Items counts tasks, and everything else that is listed or would be.
	Items uint64 `json:"left_out"`
}

func (s salvaged) String() string {
	var states []string
	for state := lease.Scheduled; state <= lease.Cancelled; state++ {
		if n := s.States[state.String()]; n > 0 {
			states = append(states, fmt.Sprintf("%d %v", n, state))
		}
	}
	kept := counted(s.Tasks, "task")
	if len(states) > 0 {
		kept += " (" + strings.Join(states, ", ") + ")"
	}
	text := fmt.Sprintf("%s: %s, epoch %d; ", s.To, kept, s.Epoch)
	switch others := s.Items - s.LeftOut; {
	case s.Items == 0:
		text += "nothing was left out"
	case others == 0:
		text += "left out: " + s.leftOut()
	default:
		text += fmt.Sprintf("left out: %s, and %s", s.leftOut(), counted(others, "other thing"))
	}
	return text + fmt.Sprintf("; move %s away, so that nobody serves it any more, then serve %s", s.Data, s.To)
}

// leftOut says how many tasks are left out, as far as anybody knows.
func (s salvaged) leftOut() string {
	switch {
	case !s.Unknown:
		return counted(s.LeftOut, "task")
	case s.LeftOut == 0:
		return "nobody knows how many tasks"
	}
	return "at least " + counted(s.LeftOut, "task")
}

func (c salvageCmd) Run(a *app) error {
	if err := requireClock(time.Now()); err != nil {
		return err
	}
	done := salvaged{Data: c.Data, To: c.To, Format: store.Current().Format(), States: map[string]uint64{}}
	var items []leftOut
	err := boltstore.Salvage(c.Data, c.To, boltstore.Options{}, func(from *boltstore.Remains, to *boltstore.Store) error {
		report, err := salvage.Fill(a.ctx, from, to, lease.WallOf(time.Now()), func(i salvage.Item) {
			if done.Items++; done.Items <= maxListed {
				items = append(items, leftOutOf(i))
			}
		})
		if err != nil {
			return err
		}
		done.Tasks, done.Leases, done.LeftOut, done.Unknown = report.Total, report.Leases, report.LeftOut,
			report.Unknown
		for state, n := range report.Tasks {
			done.States[state.String()] = n
		}
		if done.Epoch, err = beginEpoch(a, to); err != nil {
			return err
		}
		_, err = verifyOrFail(to)
		return err
	})
	if err != nil {
		return c.failure(err)
	}
	if err := c.print(a, items, done); err != nil {
		return unheard(err, "", "the store in %s was made", c.To)
	}
	if done.Items > 0 {
		return &failure{
			code: exitFailed,
			hint: "keep the damaged store; what was left out may be in a backup, or be submitted again",
		}
	}
	return nil
}

// print prints the report.
func (salvageCmd) print(a *app, items []leftOut, done salvaged) error {
	for _, item := range items {
		if err := a.line(item, "left out: "+item.String()); err != nil {
			return err
		}
	}
	if more := done.Items - uint64(len(items)); more > 0 && !a.json {
		if err := a.line(nil, fmt.Sprintf("left out: %d more", more)); err != nil {
			return err
		}
	}
	return a.line(done, done.String())
}

// failure returns the error for a store that could not be salvaged. Nothing was made.
func (c salvageCmd) failure(err error) error {
	var (
		noRoom  *store.NoRoomError
		target  *boltstore.TargetError
		damaged *store.DamagedError
		told    *failure
	)
	const hint = "free space on that disk, or name a directory on another one"
	switch {
	case errors.As(err, &noRoom):
		return fail(exitCannotStart, hint,
			"no room for the new store on the disk of %s: it takes at least %s, and %s are free", c.To,
			words.Bytes(uint64(noRoom.Needed)), words.Bytes(uint64(noRoom.Free)))
	case noSpace(err):
		return fail(exitCannotStart, hint, "no space left on the disk of %s", c.To)
	case errors.As(err, &told):
		return fail(exitCannotStart, "nothing was made; restore a backup, and keep the damaged store for analysis", "%s", told.text)
	case errors.As(err, &target):
		return storeError(c.To, target.Err)
	case errors.As(err, &damaged):
		return fail(exitCannotStart, "restore a backup", "%v", damaged)
	case errors.Is(err, fs.ErrNotExist):
		return fail(exitCannotStart, "name the --data directory of lessor serve, or a file that lessor backup wrote", "there is no store in %s", c.Data)
	}
	return storeError(c.Data, err)
}
