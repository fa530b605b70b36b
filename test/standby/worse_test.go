//go:build faults

package standby

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/test/proxy"
)

// A coordinator has two standbys, and dies while one of them lacks something. People promote that
// one. The other one does not follow it, neither at once nor after more starts of the promoted
// store: it says why, and keeps its copy. That can be promoted in turn, and has everything that was
// acknowledged (A6).
func TestWorseStandbyIsPromoted(t *testing.T) {
	t.Parallel()
	for _, later := range []bool{false, true} {
		p := newPair(t)
		p.serve()
		var addr atomic.Value // at which clients find the coordinator
		addr.Store(p.c.Addr())
		p.relay = proxy.NewRelay(t, func() string { return addr.Load().(string) })
		better := filepath.Join(t.TempDir(), "better")
		p.follow(better)
		worse := filepath.Join(t.TempDir(), "worse")
		lagging := harness.Start(t, harness.Command{Args: []string{"standby", "run", "--name", "worse", "--addr", p.c.Addr(), "--data", worse}})
		p.awaitStatus("the second standby is not complete", func(m *lessorv1.GetStatusResponse) bool {
			complete := 0
			for _, one := range m.GetStandbys() {
				if one.GetComplete() {
					complete++
				}
			}
			return complete == 2
		})
		stop := p.load()
		p.awaitMore(20)
		lagging.Pause()
		p.awaitMore(20)
		p.c.Kill()
		lagging.Kill()
		stop()
		if later {
			if code := p.s.Stop(); code != 0 {
				t.Fatalf("the standby ended with exit code %d\n%s", code, p.s.Stderr())
			}
		}

		p.run("standby", "promote", worse)
		p.dir = worse
		p.serve()
		addr.Store(p.c.Addr())
		if later {
			p.c.Stop()
			p.serve()
			p.s = harness.Start(t, harness.Command{Args: []string{"standby", "run", "--name", "spare", "--addr", p.c.Addr(), "--data", better}})
		}
		if code := p.s.Wait(); code != 5 {
			t.Errorf("the standby that has more ended with exit code %d, want 5", code)
		}
		for _, want := range []string{"promoted or restored (epoch ", "that it lacks: at least ", "hint: the copy was kept: "} {
			if !strings.Contains(p.s.Stderr(), want) {
				t.Errorf("the standby that has more does not say %q:\n%s", want, p.s.Stderr())
			}
		}

		p.c.Kill()
		p.run("verify", better)
		p.run("standby", "promote", "--force", better) // the relay still listens where the coordinator did
		p.dir = better
		p.serve()
		p.b.compare(t.Context(), t, lessorv1.NewTaskServiceClient(p.c.Conn()))
		submits, reports := p.b.sizes()
		t.Logf("%d submits and %d reports were acknowledged", submits, reports)
	}
}
