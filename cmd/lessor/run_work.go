package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/execworker"
	"github.com/lessor-dev/lessor/internal/runner"
	"github.com/lessor-dev/lessor/worker"
)

// runWork is the work of one process on a run: it starts a worker, with an embedded coordinator or
// for a remote one, and follows the run.
type runWork struct {
	runCmd
	*app
	job    *runner.Job
	screen *runner.Screen
	spans  trace.TracerProvider // nil: none
	// cut is true if an output could not be written.
	cut bool
}

// newRunWork returns the work on a run, which has not begun. Its log is written to the screen,
// which may be stuck because nobody takes an output: what the worker and the embedded coordinator
// have to say must not wait for that, since leases would expire meanwhile.
func newRunWork(c runCmd, a *app, job *runner.Job) *runWork {
	r := &runWork{runCmd: c, app: a, job: job, screen: c.screen(a)}
	a.log = newLogWriter(r.screen, r.logHandler)
	return r
}

// errWorkerEnded ends the following of a run because its worker has ended.
var errWorkerEnded = errors.New("the worker has ended")

func (r *runWork) run() (runner.Summary, error) {
	if r.Addr != "" {
		return r.runRemote()
	}
	e, err := startEmbedded(r.job.StoreDir(), r.job.SocketDir(), r.logger(), r.spans, r.noteGone)
	if err != nil {
		return runner.Summary{}, err
	}
	cl, err := e.dial()
	if err != nil {
		return runner.Summary{}, errors.Join(err, e.close())
	}
	summary, err := r.workAndFollow(e.alive, cl)
	return summary, errors.Join(err, cl.Close(), e.close())
}

// runRemote uses a remote coordinator. The coordinator must be reachable at the beginning. Later
// the run waits for it when it is away.
func (r *runWork) runRemote() (runner.Summary, error) {
	cl, err := r.dial(r.Addr, grpc.WithChainUnaryInterceptor(runner.RefuseAtOnce))
	if err != nil {
		return runner.Summary{}, err
	}
	defer func() { _ = cl.Close() }()
	if _, err := cl.admin.GetStatus(r.ctx, &lessorv1.GetStatusRequest{}); err != nil {
		return runner.Summary{}, stopped(r.ctx, err)
	}
	r.giveUp(cl, r.job.CancelReplaced)
	summary, err := r.workAndFollow(context.Background(), cl)
	if err != nil && r.Data == "" {
		r.giveUp(cl, r.job.Cancel)
	}
	return summary, err
}

// giveUp cancels the tasks of a run that nobody will resume. If that fails, it prints a note that
// says that the tasks stay.
func (r *runWork) giveUp(cl *client, run func(context.Context, lessorv1.TaskServiceClient) error) {
	ctx, cancel := context.WithTimeout(context.Background(), giveUpTimeout)
	defer cancel()
	if err := run(ctx, cl.tasks); err != nil {
		r.screen.Note("cannot cancel the remaining tasks of the abandoned run at %s: %s", r.Addr, explain(err).text)
	}
}

// giveUpTimeout is how long the cancelling of a run may take.
const giveUpTimeout = 10 * time.Second

// workAndFollow runs the worker until everything is printed, or follows the run until the worker or
// the coordinator ends. Nothing is submitted before the coordinator has accepted the worker: with
// the credential of another tenant than --tenant, no line must reach that tenant.
func (r *runWork) workAndFollow(alive context.Context, cl *client) (runner.Summary, error) {
	if r.job.Resumed {
		if err := r.resume(alive, cl); err != nil {
			return runner.Summary{}, err
		}
	}
	kill, killAll := context.WithCancel(r.stopNow)
	defer killAll()
	accepted, accept := context.WithCancel(context.Background())
	defer accept()
	working, stopWork := context.WithCancel(r.ctx)
	defer stopWork()
	w, err := r.worker(cl, working.Done(), kill.Done(), accept)
	if err != nil {
		return runner.Summary{}, err
	}
	defer context.AfterFunc(r.ctx, r.noteStopping)()
	following, stopFollowing := context.WithCancelCause(alive)
	ended := make(chan struct{})
	defer r.closeUnanswered(cl)()
	go func() {
		defer close(ended)
		stopFollowing(r.endCause(w.Run(working)))
	}()
	select {
	case <-accepted.Done():
	case <-following.Done():
	}
	summary, err := r.job.Run(following, runner.Config{
		Tasks:     cl.tasks,
		Epoch:     cl.epoch,
		Screen:    r.screen,
		KeepOrder: r.KeepOrder,
		Record:    r.record(r.app),
		BarWidth:  barWidth(r.err),
		Stopping:  working.Done(),
		OutputFailed: func(err error) {
			r.noteCut(err)
			stopWork() // as a signal does
		},
	})
	if err != nil {
		killAll()
	}
	stopWork()
	<-ended
	if status.Code(err) == codes.Canceled { // closeUnanswered has closed the connection
		err = stopped(r.ctx, err)
	}
	return summary, err
}

// resume says how far earlier processes came, and opens what has failed there if that is wanted.
// That is done before the worker begins: what ends only now does not belong to it.
func (r *runWork) resume(alive context.Context, cl *client) error {
	ctx, cancel := context.WithCancelCause(alive)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()
	done, failed, err := r.job.CountEnded(ctx, cl.tasks)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	text := fmt.Sprintf("resuming %s of %s: %d done, %d failed",
		r.job.RunID(), runner.CountLines(r.job.Lines()), done, failed)
	if done+failed < r.job.Lines() {
		text += r.resumeWait()
	}
	r.screen.Note("%s", text)
	if !r.RetryFailed {
		return nil
	}
	if err := r.retryFailed(ctx, cl); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// retryFailed opens the failed lines again, and has those submitted again whose tasks are gone.
func (r *runWork) retryFailed(ctx context.Context, cl *client) error {
	deleted, err := r.job.RestoreDeleted(ctx, cl.tasks)
	if err != nil {
		return err
	}
	if deleted > 0 {
		r.screen.Note("submitting again what was deleted: %s", runner.CountLines(deleted))
	}
	opened, left, err := r.job.RetryFailed(ctx, cl.tasks)
	if err != nil {
		return err
	}
	if left > 0 {
		r.screen.Note("the tenant's quota of tasks is used up: %s of what had failed can run again only as tasks end", runner.CountLines(left))
		return nil
	}
	r.screen.Note("running again what had failed: %s", runner.CountLines(int64(opened)))
	return nil
}

// worker returns the worker of the run. It calls accept when a coordinator has accepted it. For
// stop and kill, see execworker.Config.
func (r *runWork) worker(cl *client, stop, kill <-chan struct{}, accept func()) (*worker.Worker, error) {
	handler, err := execworker.Config{
		Command:     commandOf(r.Command),
		Arguments:   true,
		Placeholder: r.Replace,
		Spool:       r.job.Spool(),
		InlineLimit: r.inlineLimit(),
		KeepFailed:  true,
		Timeout:     r.Timeout,
		Stderr:      r.screen,
		Stop:        stop,
		Kill:        kill,
	}.Handler()
	if err != nil {
		return nil, fail(exitUsage, "", "%v", err)
	}
	tenant := "" // the tenant of an embedded coordinator
	if r.Addr != "" {
		tenant = r.Tenant
	}
	w, err := worker.New(cl, []string{r.job.RunID()}, worker.Config{
		Tenant:         tenant,
		Name:           r.job.RunID(),
		Version:        buildVersion(),
		Workspace:      r.Workspace,
		Concurrency:    int(r.Jobs),
		DrainTimeout:   r.DrainTimeout,
		Logger:         r.logger(),
		TracerProvider: r.spans,
		Hooks: worker.Hooks{
			OnNoNewWork: r.noteNoNewWork,
			OnState: func(s worker.State) {
				if s == worker.StateRegistered {
					accept()
				}
			},
		},
	})
	if err != nil {
		return nil, configError("run", err)
	}
	w.Handle(runner.TaskType, handler)
	return w, nil
}

// inlineLimit returns the InlineLimit of the worker; 0 is the default. Outputs in the spool are
// removed once they are printed, but those in the store stay until the end: of a run that nobody
// will resume, the store gets only short ones.
func (r *runWork) inlineLimit() int {
	if r.Data == "" && r.Addr == "" && !r.json {
		return 64 << 10
	}
	return 0
}

// logger returns a log that does not disturb the progress bar. It logs only errors; with --verbose,
// everything.
func (r *runWork) logger() *slog.Logger { return slog.New(r.logHandler(r.log)) }

func (r *runWork) logHandler(w io.Writer) slog.Handler {
	level := slog.LevelError
	if r.Verbose {
		level = slog.LevelDebug
	}
	return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})
}

// endCause returns the cause with which the following of the run ends.
func (r *runWork) endCause(err error) error {
	if cause := context.Cause(r.ctx); cause != nil {
		return cause
	}
	if err = workerError(err); err != nil {
		return err
	}
	return errWorkerEnded
}

// note prints a line in turn with the log.
func (r *runWork) note(format string, args ...any) { _, _ = fmt.Fprintf(r.log, format+"\n", args...) }

// noteStopping prints what the first signal does, unless that stops the run at once.
func (r *runWork) noteStopping() {
	if by, ok := errors.AsType[*interruptedError](context.Cause(r.ctx)); ok && by.signal == syscall.SIGQUIT {
		return
	}
	r.note("stopping: running commands may go on for %v; a second signal kills them", r.DrainTimeout)
}

// noteCut prints what happens when an output cannot be written. It takes two signals to kill the
// commands, since a terminal that is closed also sends one.
func (r *runWork) noteCut(err error) {
	r.cut = true
	if r.ctx.Err() == nil {
		r.note("stopping: cannot write the output: %v; running commands may go on for %v; two signals kill them", err, r.DrainTimeout)
	}
}

// noteStopped prints how far a run came that was stopped by a signal, or because an output could
// not be written.
func (r *runWork) noteStopped(summary runner.Summary, err error) {
	if _, signal := errors.AsType[*interruptedError](err); !signal && !r.cut || summary.Lines == 0 {
		return
	}
	if r.json {
		_ = r.encode(summary) // the run ends with a better error
		return
	}
	text := summary.String()
	if r.Data == "" {
		text += "; without --data nothing of it is remembered: the same command begins with the first line"
	}
	r.screen.Note("%s", text)
}

// encode prints the summary for programs.
func (r *runWork) encode(summary runner.Summary) error {
	return json.NewEncoder(r.screen).Encode(summary)
}

// noteGone prints what it means that the store was moved or removed. The run goes on: what it has
// is still in the open file.
func (r *runWork) noteGone() {
	if r.Data != "" { // otherwise nobody can resume the run anyway
		r.note("%s was moved or removed: the run goes on, but if it is stopped it cannot be resumed from there", r.job.StoreDir())
	}
}

// noteNoNewWork prints why the worker gets no new work, and when it gets work again. The log says
// that only with --verbose.
func (r *runWork) noteNoNewWork(why string) {
	if why == "" {
		r.note("the coordinator gives new work again")
		return
	}
	r.note("waiting: the coordinator gives no new work: %s", why)
}

// conclude prints the summary. If lines failed, the exit code says so too.
func (r *runWork) conclude(summary runner.Summary, took time.Duration) error {
	if r.json {
		if err := r.encode(summary); err != nil {
			return err
		}
	} else {
		r.screen.Note("%v, in %v", summary, took.Round(time.Millisecond))
	}
	if summary.OK() {
		return nil
	}
	f := &failure{code: exitFailed}
	if r.Data != "" && !r.json && summary.Done < summary.Lines {
		f.hint = "the same command with --retry-failed runs again what has failed, was cancelled or deleted"
	}
	return f
}
