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
)

// maxProfile is the longest CPU profile, in seconds, that the coordinator's HTTP server can still answer with.
const maxProfile = 25

// profiles runs each phase once more, on coordinators with profiling, and keeps the profiles. took says how long each phase took before.
func (c Config) profiles(ctx context.Context, took map[string]time.Duration) error {
	if c.Profile == "" {
		return nil
	}
	c.Backlogs = nil // their coordinators are killed
	for _, p := range c.phases() {
		c.progress("profile: %s", p.name)
		seconds := min(int(took[p.name].Seconds())+1, maxProfile)
		w := work{p.name, func(ctx context.Context) (samples, error) {
			return nil, c.withCoordinator(ctx, func(s *coordinator) error { return c.profile(ctx, s, p, seconds) }, "--pprof")
		}}
		if _, err := w.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// profile runs a phase while its coordinator and this process, the load, are profiled.
func (c *Config) profile(ctx context.Context, s *coordinator, p phase, seconds int) error {
	stop, err := c.profileLoad(p.name)
	if err != nil {
		return err
	}
	cpu := make(chan error, 1)
	go func() {
		cpu <- c.fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.http, seconds), p.name+".cpu.pprof")
	}()
	_, err = c.measure(ctx, s, p)
	err = cmp.Or(err, stop(), c.fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/heap", s.http), p.name+".heap.pprof"))
	if err != nil {
		s.kill() // ends the other profile as well
	}
	return cmp.Or(err, <-cpu)
}

// profileLoad profiles the processor time of this process until stop is called.
func (c *Config) profileLoad(phase string) (stop func() error, err error) {
	file, err := os.Create(filepath.Join(c.Profile, phase+".load.pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// fetch saves the answer to a request for a URL.
func (c *Config) fetch(ctx context.Context, url, name string) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
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
	file, err := os.Create(filepath.Join(c.Profile, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.Copy(file, res.Body)
	return err
}
