package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/producer"
)

// sdkWorker is a worker of the SDK. Its handlers end in random ways.
type sdkWorker struct {
	w     *world
	tn    *tenant
	name  string
	slots int
	quit  context.CancelFunc
	as    *instance
	ended chan error

	mu      sync.Mutex // guards the rest
	running int
	attempt map[*worker.Task]*sdkAttempt
}

// sdkAttempt is an attempt in the hands of a worker of the SDK.
type sdkAttempt struct {
	*leaseRecord
	said     string // what the handler has returned: the output
	verdicts int
}

// giveSDK gives a tenant a worker and a producer of the SDK. They share a connection.
func (w *world) giveSDK(tn *tenant) {
	conn, err := worker.Dial("passthrough:///coordinator",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if l := w.now.Load(); l != nil {
				return l.listener.DialContext(ctx)
			}
			return nil, errors.New("the coordinator does not run")
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(newestToken{tn}))
	if err != nil {
		w.Fatal(err)
	}
	tn.conn, tn.submits = conn, producer.New(conn)
	tn.sdk = w.newSDK(tn, "sdk")
}

// newestToken is the newest credential of a tenant.
type newestToken struct{ tn *tenant }

func (n newestToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + n.tn.token.Load().token}, nil
}

func (newestToken) RequireTransportSecurity() bool { return false }

func (w *world) newSDK(tn *tenant, name string) *sdkWorker {
	s := &sdkWorker{
		w: w, tn: tn, name: name, slots: 1 + w.rng.IntN(4), ended: make(chan error, 1),
		attempt: map[*worker.Task]*sdkAttempt{},
	}
	w.sdks++
	version := fmt.Sprint("v", w.sdks)
	s.as = w.book.ofSDK(workerOf{tn, name}, version)
	sw, err := worker.New(tn.conn, queues, worker.Config{
		Name: name, Version: version, Tenant: tn.name, Workspace: pick(w.rng, tn.spaces...), Concurrency: s.slots,
		SingleFlight: one(w.rng, 2), Features: []string{"gpu0", "gpu1"},
		MaxBackoff: 2 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Metrics: func(map[string]float64) map[string]float64 { return nil }, // a history is not about its machine
		Hooks:   worker.Hooks{OnVerdict: s.verdict},
	})
	if err != nil {
		w.Fatal(err)
	}
	sw.HandleDefault(s.handle)
	ctx, quit := context.WithCancel(context.Background())
	s.quit = quit
	go func() { s.ended <- sw.Run(ctx) }()
	return s
}

// handle notes the attempt, which is new, and takes its time.
func (s *sdkWorker) handle(ctx context.Context, t *worker.Task) ([]byte, error) {
	s.mu.Lock()
	if s.running++; s.running > s.slots {
		s.w.problem("%s: %d handlers of the SDK run, and there are %d slots", s.tn.name, s.running, s.slots)
	}
	a := &sdkAttempt{leaseRecord: s.w.book.handled(t, s.as)}
	s.attempt[t] = a
	s.mu.Unlock()
	rng := s.w.fate(fmt.Sprint("sdk ", t.ID, t.Attempt))
	output, err := s.run(ctx, t, rng.IntN(12), upTo(rng, pick(rng, time.Second, 10*time.Second)))
	s.mu.Lock()
	a.said = string(output)
	s.running--
	s.mu.Unlock()
	for _, kind := range []string{"complete", "fail", "release"} { // the SDK says which of them it was
		s.w.book.sending(a.leaseRecord, sdkReport(kind, a.said))
	}
	return output, err
}

func (s *sdkWorker) run(ctx context.Context, t *worker.Task, how int, span time.Duration) ([]byte, error) {
	switch how {
	case 0:
		_ = t.SaveCheckpoint(ctx, []byte("so far"))
	case 1:
		_, _ = t.Output("out").Write([]byte("a line of output\n"))
	case 2:
		t.Progress(0.5, "half", "middle")
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(span):
	}
	switch how {
	case 3:
		return nil, errors.New("broken")
	case 4:
		return nil, worker.Release(time.Second, "not now")
	case 5:
		_ = t.Confirm(ctx, 0)
	}
	return fmt.Append(nil, t.ID, " ", t.Attempt), nil
}

func sdkReport(kind, output string) report {
	if kind != "complete" {
		output = ""
	}
	return report{kind, output}
}

// verdict notes the verdict on an attempt, of which there is one.
func (s *sdkWorker) verdict(t *worker.Task, v *lessorv1.ReportVerdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attempt[t]
	if a == nil {
		s.w.count("report of an attempt that the SDK did not begin", v.GetVerdict().String()+" "+v.GetReason().String())
		return
	}
	s.w.count("report of the SDK", v.GetVerdict().String()+" "+v.GetReason().String())
	if a.verdicts++; a.verdicts > 1 || v.GetVerdict() == lessorv1.Verdict_VERDICT_REJECTED {
		s.w.problem("K1: attempt %d of %s, which the SDK has handled, has verdict %d: %v", t.Attempt, t.ID, a.verdicts, v)
	}
	kind := map[lessorv1.ReportKind]string{
		lessorv1.ReportKind_REPORT_KIND_COMPLETE: "complete", lessorv1.ReportKind_REPORT_KIND_FAIL: "fail",
		lessorv1.ReportKind_REPORT_KIND_RELEASE: "release",
	}[v.GetKind()]
	s.w.book.judged(a.leaseRecord, sdkReport(kind, a.said), v.GetVerdict(), v.GetReason(), time.Now())
}

// handled notes an attempt that a handler of the SDK begins, which it does once.
func (b *book) handled(t *worker.Task, by *instance) *leaseRecord {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.add(&leaseRecord{task: t.ID, attempt: t.Attempt, token: t.FencingToken, by: by})
}

// renews ends the worker of the SDK and begins another one.
func (w *world) renews(tn *tenant) {
	old := tn.sdk
	if old == nil {
		return
	}
	w.note("%s: the worker of the SDK ends", tn.name)
	tn.sdk = w.newSDK(tn, fmt.Sprint("sdk", w.rng.IntN(3)))
	w.busy.Go(old.stop)
}

// stop drains the worker.
func (s *sdkWorker) stop() {
	s.quit()
	err := <-s.ended
	s.w.count("end of a worker of the SDK", fmt.Sprint(err))
	if err != nil && !errors.Is(err, worker.ErrUndelivered) {
		s.w.problem("%s: the worker of the SDK has ended with %v", s.tn.name, err)
	}
}

// produces submits some tasks at once with the SDK, and waits for them.
func (w *world) produces(tn *tenant) {
	if tn.submits == nil {
		return
	}
	specs := w.specs(tn, 12)
	w.note("%s submits %d with the SDK", tn.name, len(specs))
	for _, spec := range specs {
		w.busy.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			began := time.Now()
			res, err := tn.submits.Submit(ctx, spec)
			if w.count("Submit of the SDK", status.Code(err).String()); err == nil {
				w.book.submitted(tn, spec, res.GetTaskId(), res.GetCreated(), began)
				w.waits(ctx, tn, res.GetTaskId())
				return
			}
			// it was refused for long by quotas, or while the coordinator was down
			late := spec.Deadline != nil && time.Now().After(spec.GetDeadline().AsTime())
			switch code := status.Code(err); {
			case code == codes.AlreadyExists, code == codes.ResourceExhausted, code == codes.Unavailable, code == codes.Unauthenticated:
			case code == codes.InvalidArgument && late:
			case code == codes.Internal && w.log.allows():
			default:
				w.problem("%s: Submit of the SDK: %v", tn.name, err)
			}
		})
	}
}

// waits waits for a task with the SDK, until it has ended or ctx has.
func (w *world) waits(ctx context.Context, tn *tenant, id string) {
	known := w.book.known(id)
	t, err := tn.submits.Wait(ctx, id)
	w.count("Wait of the SDK", status.Code(err).String())
	switch code := status.Code(err); {
	case code == codes.OK, code == codes.NotFound:
		if w.book.read(known, id, t, err); err == nil && !words.Final(t.GetState()) {
			w.problem("%s: Wait of the SDK returned a task that is %v", tn.name, t.GetState())
		}
	case code == codes.DeadlineExceeded, code == codes.Unauthenticated, code == codes.Internal && w.log.allows():
	default:
		w.problem("%s: Wait of the SDK: %v", tn.name, err)
	}
}

// leaveSDK ends all workers and producers of the SDK.
func (w *world) leaveSDK() {
	for _, tn := range w.tenants {
		if tn.sdk != nil {
			tn.sdk.stop()
			tn.sdk = nil
			w.busy.Go(func() { // its calls have ended by then
				time.Sleep(2 * patience)
				tn.submits.Close()
				_ = tn.conn.Close()
			})
		}
	}
}
