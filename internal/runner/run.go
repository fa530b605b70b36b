package runner

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// barInterval is how often the progress bar is drawn.
const barInterval = 200 * time.Millisecond

// lastSweepTimeout bounds the last search for lines that have ended, when a run ends early. Perhaps
// it ends because the coordinator has failed.
const lastSweepTimeout = 5 * time.Second

// Config says how a run is followed.
type Config struct {
	// Tasks is the coordinator. Required.
	Tasks lessorv1.TaskServiceClient
	// Epoch returns the epoch of the coordinator, which changes when the coordinator is restored
	// from a backup. The run then submits again the lines that the restore has lost. Required.
	Epoch func(context.Context) (uint32, error)
	// Screen to write to. Required.
	Screen *Screen
	// KeepOrder prints the lines in the order of the input, not in the order in which they end.
	KeepOrder bool
	// Record writes a task that has ended, instead of its output; failed is the name of the file
	// with what the last attempt of a failed one has printed, which is there if it has printed
	// anything here. A line whose task is gone is a task without a state. Nil: the output is
	// printed.
	Record func(w io.Writer, t *lessorv1.Task, failed string) error
	// BarWidth returns how many columns the progress bar may have. Nil: no bar.
	BarWidth func() int
	// Stopping is closed when no more lines will begin, as the bar then says. Nil: never.
	Stopping <-chan struct{}
	// OutputFailed is called when an output could not be written, after which no other is. It has
	// the workers stop; Run returns, with that error, when its ctx ends, and counts what ended
	// until then. Nil: Run returns at once.
	OutputFailed func(error)
}

// errOver ends the other goroutines when the printing has ended.
var errOver = errors.New("the run is over")

// Run submits the lines and prints each when it has ended. It prints all lines, also those that
// ended while an earlier process worked on the run. It returns when nothing is left to print, or
// with ctx's cause if ctx ends first and something is left, which the summary then counts. The
// caller must run the workers. After RetryFailed has left lines, nothing is printed before all of
// them are open: they would count as failed.
func (j *Job) Run(ctx context.Context, cfg Config) (Summary, error) {
	if err := j.retryLeft(ctx, cfg.Tasks); err != nil {
		return Summary{Lines: j.Lines(), Left: j.Lines(), Stopped: true}, cmp.Or(context.Cause(ctx), err)
	}
	workers := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errOver)
	r := j.newRun(cfg)
	var beside sync.WaitGroup
	for _, part := range []func(context.Context) error{r.submit.run, r.watch.run, r.tellRetries, r.showBar} {
		beside.Go(func() {
			if err := part(ctx); err != nil {
				cancel(err)
			}
		})
	}
	follow := r.follow.printAsTheyEnd
	if cfg.KeepOrder {
		follow = r.follow.printInOrder
	}
	err := follow(ctx)
	if err == nil {
		err = r.follow.reportDeleted()
	}
	if cfg.Screen.outputFailed() {
		r.awaitWorkers(ctx, err)
	} else if cause := context.Cause(ctx); cause != nil {
		err = cause // the error of a call that the end of ctx has interrupted says less
	}
	cancel(errOver)
	beside.Wait()
	if err != nil { // the worker has ended, too: print the lines that it finished while it stopped
		last, stop := context.WithTimeout(context.WithoutCancel(ctx), lastSweepTimeout)
		defer stop()
		// the next process prints the lines after one that has not ended; of another run, nobody
		// would see them
		resumable := !j.temporary
		rest := r.follow.printRest(last, cfg.KeepOrder && resumable)
		complete := rest == nil && r.follow.printed.left() == 0 && !cfg.Screen.outputFailed()
		if complete && errors.Is(err, context.Cause(workers)) { // they finished it while they stopped
			err = nil
		} else {
			err = errors.Join(err, rest)
		}
	}
	summary := r.follow.summary()
	summary.Lines, summary.Stopped = j.Lines(), err != nil
	if summary.Stopped {
		summary.Left = r.follow.printed.left()
	} else {
		summary.Missing = r.follow.printed.left()
	}
	return summary, err
}

// run has the parts that work on a job at the same time.
type run struct {
	submit *submitter
	watch  *watcher
	follow *follower
	tally  *tally
	cfg    Config
}

func (j *Job) newRun(cfg Config) *run {
	t := newTally(j)
	ended, eventsMissed := make(chan string), make(chan struct{}, 1)
	r := &run{submit: newSubmitter(j, cfg), tally: t, cfg: cfg}
	r.watch = &watcher{
		job: j, tasks: cfg.Tasks, begun: r.submit.begun, eventsMissed: eventsMissed,
		tried: j.Resumed, sequence: j.cursor(),
	}
	if cfg.BarWidth != nil {
		r.watch.tally = t
	}
	if !cfg.KeepOrder {
		r.watch.ended = ended
	}
	if cfg.Record == nil { // a record has all attempts
		r.watch.retries = newRetryNotes(cfg)
	}
	r.follow = &follower{
		printer: &printer{
			job:     j,
			tasks:   cfg.Tasks,
			screen:  cfg.Screen,
			tally:   t,
			record:  cfg.Record,
			printed: newMarks(j.Lines()),
		},
		ended:        ended,
		eventsMissed: eventsMissed,
		submit:       r.submit,
	}
	return r
}

// awaitWorkers has the workers stop after an output could not be written, and returns when they
// have.
func (r *run) awaitWorkers(ctx context.Context, err error) {
	if r.cfg.OutputFailed != nil {
		r.cfg.OutputFailed(err)
		<-ctx.Done()
	}
}

// tellRetries tells of attempts that are made again, until ctx ends.
func (r *run) tellRetries(ctx context.Context) error {
	if r.watch.retries == nil {
		return nil
	}
	return r.watch.retries.run(ctx)
}

// showBar draws the progress bar until ctx ends.
func (r *run) showBar(ctx context.Context) error {
	if r.cfg.BarWidth == nil {
		return nil
	}
	defer r.cfg.Screen.setBar("")
	ticker := time.NewTicker(barInterval)
	defer ticker.Stop()
	for {
		r.drawBar()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			r.drawBar() // shows how the run ended
			return nil
		}
	}
}

func (r *run) drawBar() {
	counts, rate := r.tally.now(time.Now())
	r.cfg.Screen.setBar(barText(r.tally.lines, counts, rate, closed(r.cfg.Stopping), r.cfg.BarWidth()))
}
