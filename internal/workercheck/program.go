package workercheck

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/lessor-dev/lessor/internal/process"
)

// maxOutput is how much of the end of the worker's output is kept, in bytes.
const maxOutput = 64 << 10

// program is the process of a worker.
type program struct {
	rec     *record
	output  tail
	stop    chan struct{} // closed: it is killed
	signals chan syscall.Signal
	exited  chan struct{} // closed when it has ended
	state   *os.ProcessState
	err     error // why it did not start
}

// launch starts the worker.
func launch(args, env []string, rec *record) *program {
	p := &program{rec: rec, stop: make(chan struct{}), signals: make(chan syscall.Signal), exited: make(chan struct{})}
	rec.note("(start the worker)")
	go func() {
		defer close(p.exited)
		run := process.Process{Args: args, Env: env, Stdout: &p.output, Stderr: &p.output, Stops: p.obey}
		if p.state, p.err = run.Run(); p.state != nil {
			rec.note("(the worker has ended: %v)", p.state)
		}
	}()
	return p
}

// obey sends signals to the process group until it has ended. Stopped processes are not left
// stopped: only SIGKILL reaches them.
func (p *program) obey(g *process.Group) {
	for {
		select {
		case s := <-p.signals:
			p.rec.note("(%s to the worker)", signalNames[s])
			g.Signal(s)
		case <-p.stop:
			g.Signal(syscall.SIGKILL)
			<-g.Exited()
			return
		case <-g.Exited():
			return
		}
	}
}

var signalNames = map[syscall.Signal]string{
	syscall.SIGTERM: "SIGTERM", syscall.SIGSTOP: "SIGSTOP",
	syscall.SIGCONT: "SIGCONT",
}

// signal sends s to the worker and all that it has started.
func (p *program) signal(s syscall.Signal) {
	select {
	case p.signals <- s:
	case <-p.exited:
	}
}

// kill ends the worker.
func (p *program) kill() {
	close(p.stop)
	<-p.exited
}

// ended describes how the worker ended; empty: it has not.
func (p *program) ended() string {
	select {
	case <-p.exited:
		if p.state == nil {
			return fmt.Sprintf("it did not start: %v", p.err)
		}
		return p.state.String()
	default:
		return ""
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if over := len(t.b) - maxOutput; over > 0 {
		t.b = bytes.Clone(t.b[over:])
	}
	return len(b), nil
}

// lines returns the last n lines.
func (t *tail) lines(n int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := strings.Split(strings.TrimRight(strings.ToValidUTF8(string(t.b), "\uFFFD"), "\n"), "\n")
	if len(all) == 1 && all[0] == "" {
		return nil
	}
	return all[max(0, len(all)-n):]
}
