package pool

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// held is a terminal that may be held.
type held struct {
	hold chan struct{} // who puts an element in holds it; a mutex would stop the clock of a bubble
	text bytes.Buffer
}

func newHeld() *held { return &held{hold: make(chan struct{}, 1)} }

func (h *held) Write(p []byte) (int, error) {
	h.hold <- struct{}{}
	defer func() { <-h.hold }()
	return h.text.Write(p)
}

// A log that nobody takes delays the supervisor once, and not for long. When it is taken again, it says what is missing.
func TestLogThatNobodyTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terminal := newHeld()
		log := newPatient(slog.New(slog.NewTextHandler(terminal, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))).With("pool_id", "p")
		log.Info("first")
		terminal.hold <- struct{}{}
		began := time.Now()
		for range 5 {
			log.Info("held")
		}
		if took := time.Since(began); took > logPatience {
			t.Errorf("five lines took %v, want at most %v", took, logPatience)
		}
		<-terminal.hold
		synctest.Wait()
		log.Info("last")
		const want = "level=INFO msg=first pool_id=p\nlevel=INFO msg=held pool_id=p\n" +
			"level=WARN msg=\"the log was not taken; lines are missing\" pool_id=p lines=4\nlevel=INFO msg=last pool_id=p\n"
		if got := terminal.text.String(); got != want {
			t.Errorf("the log is\n%swant\n%s", got, want)
		}
	})
}

// Lines of many workers do not get lost while the log is taken.
func TestLogOfManyWorkers(t *testing.T) {
	terminal := newHeld()
	log := newPatient(slog.New(slog.NewTextHandler(terminal, nil)))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 20 {
				log.WithGroup("g").Info("line", "n", 1)
			}
		})
	}
	all.Wait()
	if n := strings.Count(terminal.text.String(), "msg=line g.n=1\n"); n != 400 {
		t.Errorf("%d lines, want 400", n)
	}
}
