//go:build faults

package standby

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/storetest"
	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/test/proxy"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests wait more than they compute
		panic(err)
	}
	harness.Main(m)
}

const (
	producers = 4
	workers   = 4
)

// pair is a coordinator and its standby.
type pair struct {
	*testing.T
	b     *book
	dir   string // of the coordinator
	c     *harness.Coordinator
	relay *proxy.Relay // through which the standby follows; nil: none
	spare string       // directory of the standby
	s     *harness.Process
}

func newPair(t *testing.T) *pair {
	p := &pair{T: t, b: newBook(), dir: filepath.Join(t.TempDir(), "0")}
	return p
}

// serve starts the coordinator. No answer goes out that the standby does not have, however long it
// is away, unless the arguments say otherwise.
func (p *pair) serve(args ...string) {
	p.Helper()
	p.c = harness.NewCoordinator(p.T, p.dir)
	p.c.Start(append([]string{"--standby-wait", "1h"}, args...)...)
}

// follow starts a standby in the directory, which may have been one before.
func (p *pair) follow(dir string) {
	p.Helper()
	p.spare = dir
	addr := p.c.Addr()
	if p.relay != nil {
		addr = p.relay.Addr()
	}
	p.s = harness.Start(p.T, harness.Command{Args: []string{"standby", "run", "--name", "spare", "--addr", addr, "--data", dir, "--http", "127.0.0.1:0"}})
	p.awaitWaits()
}

// awaitWaits waits until answers wait for the standby.
func (p *pair) awaitWaits() {
	p.Helper()
	p.awaitStatus("answers do not wait for the standby", (*lessorv1.GetStatusResponse).GetWaitsForStandby)
}

// awaitStatus waits for a status, and fails the test with what is wrong if none comes.
func (p *pair) awaitStatus(wrong string, ok func(*lessorv1.GetStatusResponse) bool) {
	p.Helper()
	admin := lessorv1.NewAdminServiceClient(p.c.Conn())
	p.await(wrong, func() bool {
		m, err := admin.GetStatus(p.Context(), &lessorv1.GetStatusRequest{})
		if err != nil {
			p.Fatalf("GetStatus: %v", err)
		}
		return ok(m)
	})
}

// await waits until ok returns true, and fails the test with what is wrong if it never does.
func (p *pair) await(wrong string, ok func() bool) {
	p.Helper()
	for deadline := time.Now().Add(harness.Patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("%s\ncoordinator:\n%s\nstandby:\n%s", wrong, p.c.Process().Stderr(), p.s.Stderr())
		}
	}
}

// load runs clients until stop is called, or the coordinator ends. stop waits for them.
func (p *pair) load() (stop func()) {
	ctx, cancel := context.WithCancel(p.Context())
	var clients sync.WaitGroup
	for range producers {
		clients.Go(func() { p.b.produce(ctx, lessorv1.NewTaskServiceClient(p.c.Conn())) })
	}
	for i := range workers {
		clients.Go(func() { p.b.work(ctx, p.T, fmt.Sprintf("worker-%d", i), lessorv1.NewWorkerServiceClient(p.c.Conn())) })
	}
	return func() {
		cancel()
		clients.Wait()
	}
}

// awaitProgress waits until much more has been acknowledged.
func (p *pair) awaitProgress() {
	p.Helper()
	p.awaitMore(100)
}

// awaitMore waits until so many more submits and so many more reports have been acknowledged.
func (p *pair) awaitMore(n int) {
	p.Helper()
	submits, reports := p.b.sizes()
	p.await("nothing goes on any more", func() bool {
		s, r := p.b.sizes()
		return s > submits+n && r > reports+n
	})
}

// run runs a command that must succeed.
func (p *pair) run(args ...string) {
	p.Helper()
	var out strings.Builder
	proc := harness.Start(p.T, harness.Command{Args: args, Stdout: &out})
	if code := proc.Wait(); code != 0 {
		p.Fatalf("%v: exit code %d\n%s%s", args, code, out.String(), proc.Stderr())
	}
}

// A coordinator is killed at any moment, sometimes together with the standby, and its disk is gone.
// The standby is promoted, and has everything that was acknowledged: submits, verdicts and cancels
// (A6). It is then the coordinator that is killed next.
func TestFailover(t *testing.T) {
	t.Parallel()
	const rounds = 5
	p := newPair(t)
	p.serve()
	for round := range rounds {
		p.follow(filepath.Join(t.TempDir(), "spare"))
		stop := p.load()
		p.awaitProgress()
		time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
		if round%2 == 0 { // what is on its way to the standby is lost, too
			p.s.Pause()
			time.Sleep(50 * time.Millisecond)
			p.c.Kill()
			p.s.Kill()
		} else {
			p.c.Kill()
			if code := p.s.Stop(); code != 0 {
				t.Fatalf("round %d: the standby ended with exit code %d\n%s", round, code, p.s.Stderr())
			}
		}
		stop()
		if err := os.RemoveAll(p.dir); err != nil {
			t.Fatal(err)
		}
		p.run("standby", "promote", p.spare)
		p.run("verify", p.spare)
		p.dir = p.spare
		p.serve()
		p.b.compare(t.Context(), t, lessorv1.NewTaskServiceClient(p.c.Conn()))
	}
	submits, reports := p.b.sizes()
	t.Logf("%d submits and %d reports were acknowledged", submits, reports)
}

// A standby is killed at any moment, and comes back: it goes on where it was, and in the end its
// store is that of the coordinator. Answers wait meanwhile.
func TestKilledStandby(t *testing.T) {
	t.Parallel()
	const kills = 10
	p := newPair(t)
	p.serve()
	dir := filepath.Join(t.TempDir(), "spare")
	p.follow(dir)
	stop := p.load()
	for range kills {
		p.awaitProgress()
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		p.s.Kill()
		p.follow(dir)
		if strings.Contains(p.s.Stderr(), "is being copied") {
			t.Errorf("the standby began a new copy:\n%s", p.s.Stderr())
		}
	}
	p.awaitProgress()
	stop()
	p.b.compare(t.Context(), t, lessorv1.NewTaskServiceClient(p.c.Conn()))
	p.wantEqual()
}

// A coordinator is killed under load and starts again on its disk: the standby follows again, and
// ends up equal.
func TestKilledCoordinator(t *testing.T) {
	t.Parallel()
	const kills = 5
	p := newPair(t)
	p.serve()
	dir := filepath.Join(t.TempDir(), "spare")
	copies := 0
	for range kills {
		p.follow(dir)
		copies += strings.Count(p.s.Stderr(), "is being copied")
		stop := p.load()
		p.awaitProgress()
		p.c.Kill()
		stop()
		p.s.Kill()
		p.serve()
	}
	p.follow(dir)
	p.wantEqual()
	t.Logf("%d copies", copies)
}

// Over HTTP a standby says whether it is ready, and why not, also while the coordinator is away.
func TestStandbyIsWatched(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.serve()
	p.follow(filepath.Join(t.TempDir(), "spare"))
	listens := regexp.MustCompile(`"http":"([^"]+)"`).FindStringSubmatch(p.s.Stderr())
	if listens == nil {
		t.Fatalf("the log does not say where it listens:\n%s", p.s.Stderr())
	}
	want := func(path string, code int, text string) {
		t.Helper()
		var got string
		p.await("it is not as it should be", func() bool {
			answer, err := http.Get("http://" + listens[1] + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			if err := errors.Join(err, answer.Body.Close()); err != nil {
				t.Fatal(err)
			}
			got = string(body)
			return answer.StatusCode == code && strings.Contains(got, text)
		})
	}
	want("/healthz", http.StatusOK, "ok\n")
	want("/readyz", http.StatusOK, "ready: the copy is complete and follows")
	want("/metrics", http.StatusOK, "\nlessor_standby_complete 1\n")
	addr := p.c.Addr()
	p.c.Kill()
	want("/readyz", http.StatusServiceUnavailable, "not ready: cannot reach the coordinator")
	want("/metrics", http.StatusOK, "\nlessor_standby_complete 0\n")
	p.serve("--listen", addr)
	want("/readyz", http.StatusOK, "ready: ")
}

// wantEqual stops both, and compares their stores.
func (p *pair) wantEqual() {
	p.Helper()
	p.c.Stop()
	if code := p.s.Stop(); code != 0 {
		p.Fatalf("the standby ended with exit code %d\n%s", code, p.s.Stderr())
	}
	var contents []string
	for _, dir := range []string{p.dir, p.spare} {
		st, err := boltstore.OpenReadOnly(dir, boltstore.Options{})
		if err != nil {
			p.Fatal(err)
		}
		contents = append(contents, storetest.Listing(p.T, st))
		if err := st.Close(); err != nil {
			p.Fatal(err)
		}
	}
	if contents[0] != contents[1] {
		want, got := strings.Split(contents[0], "\n"), strings.Split(contents[1], "\n")
		i := 0
		for i < min(len(want), len(got)) && want[i] == got[i] {
			i++
		}
		p.Fatalf("the standby has %d lines of records, the coordinator %d; from line %d on the standby has\n%q\nwant\n%q",
			len(got), len(want), i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
	}
}
