package service

import (
	"context"
	"log/slog"
	"time"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/session"
	"github.com/lessor-dev/lessor/coordinator/submitlimit"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/standby"
)

// Deps is what the services need from the coordinator around them.
type Deps struct {
	Engine *engine.Engine
	Store  store.Store // only to read: the engine writes
	Gate   *gate.Gate
	Quotas *quota.Book
	// SubmitLimiter is for the frames of SubmitStream. What is around the unary calls takes the
	// room for them.
	SubmitLimiter *submitlimit.Limiter
	Sessions      *session.Registry // the sessions whose streams are open
	Assigner      *convert.Assigner
	Feed          *standby.Feed // the store as standbys follow it

	Limits        lease.Limits
	SessionConfig session.Config
	MaxMessage    int    // size of the largest message that is read, in bytes; workers are told
	Version       string // of the coordinator
	BackupTimeout time.Duration
	BackupStall   time.Duration // how long the client of a backup, or a standby, may pause reading
	StandbyWait   time.Duration // see standby.Options.Wait
	Logger        *slog.Logger

	// DiskFull, DiskSpent and StoreGone report why no tasks are accepted or granted at present.
	DiskFull, DiskSpent, StoreGone func() bool
	// DiskRoom returns the free space of the disk of the store, in bytes, how much of it new tasks
	// need, and how much room inside the store instead. nil: unknown.
	DiskRoom func() (free, needed, inside int64)
	// ShowBackups is told when the last backups ended: first by New, then after each.
	ShowBackups func(records.Backups)
	// Stopping is done when the coordinator begins to stop: then streams end, and unary calls that
	// wait for work return.
	Stopping context.Context
	// Following is done when no standby need follow any more: a stop has committed everything.
	Following context.Context
}

// Services are the gRPC services of a coordinator. Who registers them also decides which calls pass
// the gate, the room for submits and reqcodec.Guard.
type Services struct {
	Tasks   lessorv1.TaskServiceServer
	Workers lessorv1.WorkerServiceServer
	Admin   lessorv1.AdminServiceServer
	Auth    lessorv1.AuthServiceServer
	shared  *shared
}

// New returns the services. It reads from the store when the last backups ended.
func New(d Deps) (*Services, error) {
	times, err := lastBackups(d.Store)
	if err != nil {
		return nil, err
	}
	d.ShowBackups(times)
	sh := newShared(d)
	return &Services{
		Tasks:   &taskService{shared: sh},
		Workers: &workerService{shared: sh, streams: sh.streams()},
		Admin:   &adminService{shared: sh, started: d.Engine.Now().Wall, backups: backups{times: times}},
		Auth:    &authService{shared: sh, keyring: d.Gate.Keyring()},
		shared:  sh,
	}, nil
}
