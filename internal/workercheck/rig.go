package workercheck

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

const (
	// ttl is the heartbeat timeout of tasks, if a case does not say another.
	ttl = 2 * time.Second
	// beat is their heartbeat interval.
	beat = 500 * time.Millisecond
	// cancelGrace is less than what is left of the long task. A worker may also finish within it
	// (K6, T7).
	cancelGrace = MinLong - 1500*time.Millisecond
	// settle is how long a case watches whether the worker says what it must not.
	settle = 1500 * time.Millisecond
	// crossing is how long words may be under way when the worker is told something that they do
	// not yet heed.
	crossing = 500 * time.Millisecond
)

// rig is what a case has in its hands.
type rig struct {
	*tap
	cfg  *Config
	ctx  context.Context //nolint:containedctx // of the one case; its end is the end of the case's patience
	grpc *line
	http *line

	// sessionBeat is how often a session must send a heartbeat.
	sessionBeat time.Duration
	store       *memstore.Store
	// present is where the coordinator listens now.
	present atomic.Pointer[listeners]
	stop    context.CancelFunc
	served  chan error

	conn    *grpc.ClientConn
	tasks   lessorv1.TaskServiceClient
	workers lessorv1.AdminServiceClient
	worker  *program
	ends    []func() error
}

// listeners are those of a coordinator.
type listeners struct{ grpc, http *bufconn.Listener }

// pipeBuffer is the size of the buffers of connections within the process, in bytes.
const pipeBuffer = 1 << 20

// newRig starts a coordinator and the line to it, and no worker.
func newRig(ctx context.Context, cfg *Config, sessionBeat time.Duration) (r *rig, err error) {
	r = &rig{cfg: cfg, ctx: ctx, sessionBeat: sessionBeat, store: memstore.New()}
	defer func() {
		if err != nil {
			r.end()
		}
	}()
	if r.grpc, err = listen(); err != nil {
		return nil, err
	}
	r.atEnd(r.grpc.Close)
	if r.http, err = listen(); err != nil {
		return nil, err
	}
	r.atEnd(r.http.Close)
	if err := r.serve(); err != nil {
		return nil, err
	}
	r.conn, err = grpc.NewClient("passthrough:///coordinator", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return r.present.Load().grpc.Dial() }))
	if err != nil {
		return nil, err
	}
	r.atEnd(r.conn.Close)
	r.tasks, r.workers = lessorv1.NewTaskServiceClient(r.conn), lessorv1.NewAdminServiceClient(r.conn)
	r.tap = &tap{rec: newRecord(), coordinator: func() *grpc.ClientConn { return r.conn }}
	near, nearWeb := r.server(), webServer(newWebTap(r.tap,
		func() (net.Conn, error) { return r.present.Load().http.Dial() }))
	nearWeb.ErrorLog = log.New(io.Discard, "", 0) // connections that are cut on purpose
	go func() { _ = near.Serve(r.grpc) }()
	go func() { _ = nearWeb.Serve(r.http) }()
	r.atEnd(func() error { near.Stop(); return nearWeb.Close() })
	return r, nil
}

// atEnd lets end call f, before what it was told earlier. What goes wrong then is of no interest:
// nothing is kept.
func (r *rig) atEnd(f func() error) { r.ends = append(r.ends, f) }

func dialer(dial func() (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) { return dial() }
}

// serve starts a coordinator on the store.
func (r *rig) serve() error {
	co, err := coordinator.New(r.store, coordinator.Config{
		Logger:    slog.New(slog.DiscardHandler),
		Sessions:  session.Config{Health: session.NeverFull, HeartbeatInterval: r.sessionBeat},
		Callbacks: coordinator.Callbacks{URL: "http://" + r.http.Addr().String()},
	})
	if err != nil {
		return err
	}
	lis := &listeners{bufconn.Listen(pipeBuffer), bufconn.Listen(pipeBuffer)}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- co.Serve(ctx, lis.grpc, lis.http)
		close(served) // shutdown may come twice: when a case ends between a stop and a restart
	}()
	r.present.Store(lis)
	r.stop, r.served = stop, served
	return nil
}

// shutdown stops the coordinator, gracefully as seen by the worker unless the line is down.
func (r *rig) shutdown() error {
	r.stop()
	return <-r.served
}

// restart starts a coordinator on what the one before has stored.
func (r *rig) restart() error {
	r.store = r.store.Reopen()
	r.rec.note("(the coordinator is there again)")
	return r.serve()
}

// renew starts a coordinator that knows nothing of the one before, which has ended.
func (r *rig) renew() error {
	r.store = memstore.New()
	r.rec.note("(another coordinator is there, with an empty store)")
	return r.serve()
}

// end ends everything.
func (r *rig) end() {
	if r.worker != nil {
		r.worker.kill()
	}
	for _, f := range slices.Backward(r.ends) {
		_ = f()
	}
	if r.stop != nil {
		_ = r.shutdown()
	}
}

// launch starts the worker.
func (r *rig) launch() {
	args := make([]string, len(r.cfg.Command))
	addr, url := r.grpc.Addr().String(), "http://"+r.http.Addr().String()
	for i, arg := range r.cfg.Command {
		args[i] = strings.NewReplacer("{addr}", addr, "{url}", url, "{queue}", r.cfg.Queue).Replace(arg)
	}
	// settings for the coordinator of production
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LESSOR_") })
	r.worker = launch(args, append(env, "LESSOR_ADDR="+addr), r.rec)
}

// option changes a task.
type option func(*lessorv1.TaskSpec)

// lasting gives a task a lease that does not run out while the case lasts.
func lasting(s *lessorv1.TaskSpec) { s.HeartbeatTimeout = durationpb.New(time.Minute) }

// submit submits a task with the payload, and returns its id.
func (r *rig) submit(payload string, options ...option) (string, error) {
	spec := &lessorv1.TaskSpec{
		Queue:             r.cfg.Queue,
		Type:              r.cfg.Type,
		Payload:           []byte(payload),
		HeartbeatInterval: durationpb.New(beat),
		HeartbeatTimeout:  durationpb.New(ttl),
		CancelGrace:       durationpb.New(cancelGrace),
		RetryPolicy:       &lessorv1.RetryPolicy{InitialBackoff: durationpb.New(100 * time.Millisecond)},
	}
	for _, o := range options {
		o(spec)
	}
	res, err := r.tasks.SubmitTask(r.ctx, &lessorv1.SubmitTaskRequest{Task: spec})
	if err != nil {
		return "", err
	}
	id := res.GetTask().GetTaskId()
	r.rec.note("(submit %s, payload %q)", id, payload)
	return id, nil
}

// state returns what the coordinator knows of a task.
func (r *rig) state(task string) (*lessorv1.Task, error) {
	res, err := r.tasks.GetTask(r.ctx, &lessorv1.GetTaskRequest{TaskId: task})
	return res.GetTask(), err
}

// remove deletes a task, and its lease with it.
func (r *rig) remove(task string) error {
	r.rec.note("(delete %s)", task)
	_, err := r.tasks.DeleteTask(r.ctx, &lessorv1.DeleteTaskRequest{TaskId: task, Force: true})
	return err
}

// down takes the network down.
func (r *rig) down() {
	r.rec.note("(the network is down)")
	r.grpc.down()
	r.http.down()
}

// maxTries is how many connections or reports the worker may try in a second while nobody takes
// them.
const maxTries = 20

// up puts the network up again, and returns how often the worker has tried to connect meanwhile.
func (r *rig) up() (tries int) {
	tries = r.grpc.up() + r.http.up()
	r.rec.note("(the network is up)")
	return tries
}

// upAfter puts the network up again after d. It is a finding if the worker has tried too often to
// connect meanwhile.
func (r *rig) upAfter(d time.Duration) error {
	if tries := r.up(); tries > int(d.Seconds()*maxTries) {
		return wrong("it tried to connect %d times within %v", tries, d)
	}
	return nil
}

// cut breaks all connections of the worker, which may connect again at once.
func (r *rig) cut() {
	r.rec.note("(the connections break)")
	r.grpc.cut()
	r.http.cut()
}

// cancelTask asks for the end of a task.
func (r *rig) cancelTask(task string) error {
	r.rec.note("(cancel %s)", task)
	_, err := r.tasks.CancelTask(r.ctx, &lessorv1.CancelTaskRequest{TaskId: task, Reason: "checked"})
	return err
}
