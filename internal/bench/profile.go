package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"

	"github.com/lessor-dev/lessor/internal/httpserver"
)

// maxProfile is the longest CPU profile that is taken, in seconds. The rest of the time that the
// coordinator's HTTP server has for the answer is for sending it.
const maxProfile = int((httpserver.WriteTimeout - 5*time.Second) / time.Second)

// profiles runs each phase once more, on coordinators with profiling, and keeps the profiles. took
// says how long each phase took before.
func (c Config) profiles(ctx context.Context, took map[string]time.Duration) error {
	if c.Profile == "" {
		return nil
	}
	c.Backlogs = nil // their coordinators are killed
	for _, p := range c.phases() {
		c.progress("profile: %s", p.name)
		seconds := min(int(took[p.name].Seconds())+1, maxProfile)
		w := work{p.name, func(ctx context.Context) (samples, error) {
			return nil, c.withCoordinator(ctx, func(s *coordinator) error {
				s.profiler = &profiler{ctx: ctx, http: s.http, path: filepath.Join(c.Profile, p.name), seconds: seconds}
				_, err := c.measure(ctx, s, p)
				return cmp.Or(err, s.profiler.err)
			}, "--pprof")
		}}
		if _, err := w.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// profiler profiles a coordinator and this process, the load, during a span, and neither what a
// phase prepares nor what it checks.
type profiler struct {
	ctx     context.Context // of one phase, as the profiler is
	http    string          // of the coordinator
	path    string          // of the profiles, without their endings
	seconds int             // of the coordinator's CPU profile, which cannot be ended early
	err     error           // the first one
}

// begin starts the profiles; end waits for them. A nil profiler does nothing.
func (p *profiler) begin() (end func()) {
	if p == nil {
		return func() {}
	}
	load, err := os.Create(p.path + ".load.pprof")
	if err == nil {
		err = pprof.StartCPUProfile(load)
	}
	cpu := make(chan error, 1)
	go func() { cpu <- p.fetch(fmt.Sprintf("profile?seconds=%d", p.seconds), ".cpu.pprof") }()
	return func() {
		pprof.StopCPUProfile()
		p.err = cmp.Or(err, load.Close(), p.fetch("heap", ".heap.pprof"), <-cpu)
	}
}

// fetch saves a profile of the coordinator.
func (p *profiler) fetch(profile, ending string) (err error) {
	url := fmt.Sprintf("http://%s/debug/pprof/%s", p.http, profile)
	req, err := http.NewRequestWithContext(p.ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	file, err := os.Create(p.path + ending)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.Copy(file, res.Body)
	return err
}
