//go:build faults

package crash

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

// TestDiskFull: on a full disk submits are refused; reports, cancels and expiries go on, also after a kill and a start. When there is room again,
// submits are accepted without a restart.
func TestDiskFull(t *testing.T) {
	disk := harness.NewDisk(t, 256)
	c := harness.NewCoordinator(t, filepath.Join(disk.Dir(), "data"))
	c.Start()
	f := &fullDisk{t: t, c: c}
	for range 40 {
		f.ids = append(f.ids, submitOne(t, c))
	}
	f.lease(3 * time.Second) // this lease is to expire later; it is long enough for its Start to come in time
	full := disk.Fill("filler", 40<<20)
	f.checkSubmitRefused()
	f.checkWork()
	fuller := disk.Fill("more", 0)
	f.checkWork()
	f.checkSubmitRefused()
	c.Kill()
	_ = disk.Fill("most", 0) // takes also what the start may have freed of the reserve
	c.Start()
	f.checkSubmitRefused()
	f.checkWork()
	f.checkExpiry()
	for _, file := range []string{full, fuller, filepath.Join(disk.Dir(), "most")} {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond)
	submitOne(t, c)
	c.Stop()
	c.Verify()
}

// TestStoreFillsItsDisk: if the tasks themselves have filled the disk, others are accepted once some of them are deleted, although the file does not shrink.
func TestStoreFillsItsDisk(t *testing.T) {
	disk := harness.NewDisk(t, 256)
	c := harness.NewCoordinator(t, filepath.Join(disk.Dir(), "data"))
	start := func() { c.Start("--disk-reserve", "32MiB") }
	start()
	first := submitUntilFull(t, c)
	for _, then := range []func(){func() {}, func() { c.Kill(); start() }} {
		time.Sleep(50 * time.Millisecond)
		if free := disk.Free(); free >= 32<<20 {
			t.Fatalf("%d bytes of the disk are free, want less than the disk reserve", free)
		}
		_, err := lessorv1.NewAdminServiceClient(c.Conn()).PurgeQueue(t.Context(), &lessorv1.PurgeQueueRequest{Name: patientQueue})
		if err != nil {
			t.Fatal(err)
		}
		then()
		if again := submitUntilFull(t, c); again < first/2 {
			t.Errorf("%d tasks filled the disk; after they were deleted, %d were accepted, want at least half as many", first, again)
		}
	}
	c.Stop()
	c.Verify()
}

// submitUntilFull submits tasks with large payloads until one is refused, and returns how many were accepted.
func submitUntilFull(t *testing.T, c *harness.Coordinator) (accepted int) {
	t.Helper()
	spec := &lessorv1.TaskSpec{Queue: patientQueue, Payload: make([]byte, 300<<10)}
	for ; accepted < 10_000; accepted++ {
		_, err := lessorv1.NewTaskServiceClient(c.Conn()).SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: spec})
		if status.Code(err) == codes.ResourceExhausted {
			return accepted
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("%d tasks did not fill the disk", accepted)
	return 0
}

// fullDisk holds tasks that were submitted before the disk was full.
type fullDisk struct {
	t     *testing.T
	c     *harness.Coordinator
	ids   []string
	short *lessorv1.Assignment
}

func (f *fullDisk) checkSubmitRefused() {
	f.t.Helper()
	time.Sleep(50 * time.Millisecond) // the coordinator does not check the free space on each call
	_, err := lessorv1.NewTaskServiceClient(f.c.Conn()).SubmitTask(f.t.Context(), &lessorv1.SubmitTaskRequest{
		Task: &lessorv1.TaskSpec{Queue: patientQueue},
	})
	if status.Code(err) != codes.ResourceExhausted {
		f.t.Errorf("a submit on a full disk: error %v, want RESOURCE_EXHAUSTED", err)
	}
}

// lease submits a task whose lease soon expires, and leases it.
func (f *fullDisk) lease(ttl time.Duration) {
	f.t.Helper()
	_, err := lessorv1.NewTaskServiceClient(f.c.Conn()).SubmitTask(f.t.Context(), &lessorv1.SubmitTaskRequest{
		Task: &lessorv1.TaskSpec{Queue: shortQueue, HeartbeatTimeout: durationpb.New(ttl)},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.short = f.next(shortQueue)
	_, err = lessorv1.NewWorkerServiceClient(f.c.Conn()).Start(f.t.Context(), &lessorv1.StartRequest{
		TaskId: f.short.GetTask().GetTaskId(), LeaseId: f.short.GetLeaseId(),
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fullDisk) next(queue string) *lessorv1.Assignment {
	f.t.Helper()
	got, err := lessorv1.NewWorkerServiceClient(f.c.Conn()).Lease(f.t.Context(), &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{queue}})
	if err != nil || len(got.GetAssignments()) != 1 {
		f.t.Fatalf("Lease = %v, %v; want one task", got, err)
	}
	return got.GetAssignments()[0]
}

// checkWork leases and completes tasks with a result, and cancels another one.
func (f *fullDisk) checkWork() {
	f.t.Helper()
	for range 5 {
		a := f.next(patientQueue)
		res, err := lessorv1.NewWorkerServiceClient(f.c.Conn()).Complete(f.t.Context(), &lessorv1.CompleteRequest{
			TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Output: make([]byte, 100<<10),
		})
		if err != nil || res.GetVerdict() != committed {
			f.t.Errorf("a result on a full disk: %v, error %v, want COMMITTED", res, err)
		}
	}
	last := len(f.ids) - 1
	_, err := lessorv1.NewTaskServiceClient(f.c.Conn()).CancelTask(f.t.Context(), &lessorv1.CancelTaskRequest{TaskId: f.ids[last]})
	if err != nil {
		f.t.Errorf("a cancel on a full disk: error %v, want none", err)
	}
	f.ids = f.ids[:last]
}

// checkExpiry waits until the short lease has expired.
func (f *fullDisk) checkExpiry() {
	f.t.Helper()
	tasks := lessorv1.NewTaskServiceClient(f.c.Conn())
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		got, err := tasks.GetTask(f.t.Context(), &lessorv1.GetTaskRequest{TaskId: f.short.GetTask().GetTaskId()})
		if err != nil {
			f.t.Fatal(err)
		}
		if got.GetTask().GetLosses() == 1 {
			return
		}
	}
	f.t.Errorf("a lease did not expire on a full disk within %v", harness.Patience)
}
