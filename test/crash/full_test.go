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

// pollsOfFreeSpace is some times as long as a coordinator uses a free space that it has measured.
const pollsOfFreeSpace = 50 * time.Millisecond

// TestDiskFull: on a full disk submits are refused; reports, cancels and expiries go on, also after
// a kill and a start. In the end nothing is granted, either. When there is room again, tasks are
// submitted and granted without a restart.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	disk := harness.NewDisk(t, 256)
	c := harness.NewCoordinator(t, filepath.Join(disk.Dir(), "data"))
	c.Start()
	f := &fullDisk{t: t, c: c}
	for range 40 {
		f.ids = append(f.ids, submitOne(t, c))
	}
	f.leaseShort(3 * time.Second) // this lease is to expire later; it is long enough for its Start to come in time
	held := f.lease(10)
	full := disk.Fill("filler", 40<<20)
	f.checkSubmitRefused()
	f.checkReports(f.lease(5))
	f.checkCancel()
	fuller := disk.Fill("more", 0)
	f.checkReports(held[:5])
	f.checkCancel()
	f.checkSubmitRefused()
	c.Kill()
	_ = disk.Fill("most", 0) // takes also what the start may have freed of the reserve
	c.Start()
	f.checkSubmitRefused()
	f.checkNoGrants()
	f.checkReports(held[5:])
	f.checkCancel()
	f.checkExpiry()
	for _, file := range []string{full, fuller, filepath.Join(disk.Dir(), "most")} {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	f.awaitStatus("new tasks are refused", (*lessorv1.GetStatusResponse).GetDiskFull) // the reserve is made first
	submitOne(t, c)
	f.checkReports(f.lease(5))
	c.Stop()
	c.Verify()
}

// TestResultsFillTheDisk: results of tasks fill the disk, as submits are no longer taken. Before it
// is so full that a commit would fail, no task is granted any more, and all that were granted are
// committed. Tasks that are deleted make room inside the store, although the file does not shrink,
// and grants go on.
func TestResultsFillTheDisk(t *testing.T) {
	t.Parallel()
	disk := harness.NewDisk(t, 64)
	c := harness.NewCoordinator(t, filepath.Join(disk.Dir(), "data"))
	c.Start("--disk-reserve", "8MiB")
	f := &fullDisk{t: t, c: c}
	for range 600 {
		f.ids = append(f.ids, submitOne(t, c))
	}
	first := f.workUntilStopped(300 << 10)
	f.checkNoGrants()
	for range 2 {
		_, err := lessorv1.NewTaskServiceClient(c.Conn()).BatchDeleteTasks(t.Context(), &lessorv1.BatchDeleteTasksRequest{
			Filter: &lessorv1.TaskFilter{
				Queue:  patientQueue,
				States: []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_COMPLETED},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		f.awaitGrants()
		if again := f.workUntilStopped(300 << 10); again < first/3 {
			t.Fatalf("%d results filled the disk; after their tasks were deleted, %d others were committed, want at least a third", first, again)
		}
		f.checkNoGrants()
	}
	c.Stop()
	c.Verify()
}

// TestStoreFillsItsDisk: if the tasks themselves have filled the disk, others are accepted once
// some of them are deleted, although the file does not shrink.
func TestStoreFillsItsDisk(t *testing.T) {
	t.Parallel()
	disk := harness.NewDisk(t, 64)
	c := harness.NewCoordinator(t, filepath.Join(disk.Dir(), "data"))
	start := func() { c.Start("--disk-reserve", "8MiB") }
	start()
	first := submitUntilFull(t, c, 300<<10)
	for _, then := range []func(){func() {}, func() { c.Kill(); start() }} {
		time.Sleep(pollsOfFreeSpace)
		if free := disk.Free(); free >= 8<<20 {
			t.Fatalf("%d bytes of the disk are free, want less than the disk reserve", free)
		}
		_, err := lessorv1.NewAdminServiceClient(c.Conn()).PurgeQueue(t.Context(),
			&lessorv1.PurgeQueueRequest{Name: patientQueue})
		if err != nil {
			t.Fatal(err)
		}
		then()
		time.Sleep(pollsOfFreeSpace)
		if again := submitUntilFull(t, c, 300<<10); again < first/2 {
			t.Errorf("%d tasks filled the disk; after they were deleted, %d were accepted, want at least half as many",
				first, again)
		}
	}
	c.Stop()
	c.Verify()
}

// TestEmptiedStoreTakesTasks: tasks, and then their results, fill the disk, until the disk reserve
// is released and nothing is granted. The disk never has room for the reserve again, because the
// file of the store does not shrink; but once all tasks are deleted, others are accepted and done,
// again and again. So it is also after a result that found no piece of the store large enough.
func TestEmptiedStoreTakesTasks(t *testing.T) {
	t.Parallel()
	disk := harness.NewDisk(t, 64)
	data := filepath.Join(disk.Dir(), "data")
	c := harness.NewCoordinator(t, data)
	start := func() { c.Start("--disk-reserve", "8MiB") }
	start()
	f := &fullDisk{t: t, c: c}
	first, failures := 0, 0
	for round := range 6 {
		accepted := submitUntilFull(t, c, 60<<10)
		first = max(first, accepted)
		if accepted < first/5 {
			t.Fatalf("%d tasks filled the disk; after they were deleted, %d were accepted, want at least a fifth as many", first, accepted)
		}
		done, failed := f.workUntilRefused(900 << 10)
		stats, err := os.Stat(filepath.Join(data, "lessor.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: %d submitted, %d done, the store failed: %v; it has %d MiB, and %d KiB of the disk are free",
			round, accepted, done, failed, stats.Size()>>20, disk.Free()>>10)
		if _, err := os.Stat(filepath.Join(data, "lessor.reserve")); done == 0 && !failed || err == nil {
			t.Fatalf("%d tasks were done, and the disk reserve was not released", done)
		}
		if failed {
			failures++
			if code := c.Process().Wait(); code != 70 {
				t.Fatalf("exit code %d, want 70\n%s", code, c.Process().Stderr())
			}
			start()
		}
		f.deleteAll()
		if round%2 == 1 {
			c.Kill()
			start()
		}
	}
	if failures > 3 {
		t.Errorf("the store failed in %d rounds of 6, want that its pieces are seldom too small", failures)
	}
	c.Stop()
	c.Verify()
}

// submitUntilFull submits tasks with large payloads until one is refused, and returns how many were
// accepted.
func submitUntilFull(t *testing.T, c *harness.Coordinator, size int) (accepted int) {
	t.Helper()
	spec := &lessorv1.TaskSpec{Queue: patientQueue, Payload: make([]byte, size)}
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
	time.Sleep(pollsOfFreeSpace)
	_, err := lessorv1.NewTaskServiceClient(f.c.Conn()).SubmitTask(f.t.Context(), &lessorv1.SubmitTaskRequest{
		Task: &lessorv1.TaskSpec{Queue: patientQueue},
	})
	if status.Code(err) != codes.ResourceExhausted {
		f.t.Errorf("a submit on a full disk: error %v, want RESOURCE_EXHAUSTED", err)
	}
}

// leaseShort submits a task whose lease soon expires, and leases it.
func (f *fullDisk) leaseShort(ttl time.Duration) {
	f.t.Helper()
	_, err := lessorv1.NewTaskServiceClient(f.c.Conn()).SubmitTask(f.t.Context(), &lessorv1.SubmitTaskRequest{
		Task: &lessorv1.TaskSpec{Queue: shortQueue, HeartbeatTimeout: durationpb.New(ttl)},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.short = f.next(shortQueue, 1)[0]
	_, err = lessorv1.NewWorkerServiceClient(f.c.Conn()).Start(f.t.Context(), &lessorv1.StartRequest{
		TaskId: f.short.GetTask().GetTaskId(), LeaseId: f.short.GetLeaseId(),
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// lease leases n tasks.
func (f *fullDisk) lease(n uint32) []*lessorv1.Assignment {
	f.t.Helper()
	return f.next(patientQueue, n)
}

func (f *fullDisk) next(queue string, n uint32) []*lessorv1.Assignment {
	f.t.Helper()
	got := f.ask(queue, n)
	if uint32(len(got)) != n {
		f.t.Fatalf("%d tasks were granted, want %d", len(got), n)
	}
	return got
}

// ask asks for up to n tasks, and does not wait.
func (f *fullDisk) ask(queue string, n uint32) []*lessorv1.Assignment {
	f.t.Helper()
	req := &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{queue}, MaxTasks: n}
	got, err := lessorv1.NewWorkerServiceClient(f.c.Conn()).Lease(f.t.Context(), req)
	if err != nil {
		f.t.Fatal(err)
	}
	return got.GetAssignments()
}

// checkReports completes tasks, each with a result of 100 KiB.
func (f *fullDisk) checkReports(all []*lessorv1.Assignment) {
	f.t.Helper()
	for _, a := range all {
		f.complete(a, 100<<10)
	}
}

func (f *fullDisk) complete(a *lessorv1.Assignment, size int) {
	f.t.Helper()
	if !f.tryComplete(a, size) {
		f.t.Fatal("the store failed to take a result on a full disk, want COMMITTED")
	}
}

// tryComplete completes a task. It returns false if the store failed.
func (f *fullDisk) tryComplete(a *lessorv1.Assignment, size int) bool {
	f.t.Helper()
	res, err := lessorv1.NewWorkerServiceClient(f.c.Conn()).Complete(f.t.Context(), &lessorv1.CompleteRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Output: make([]byte, size),
	})
	if status.Code(err) == codes.Unavailable {
		return false
	}
	if err != nil || res.GetVerdict() != committed {
		f.t.Fatalf("a result on a full disk: %v, error %v, want COMMITTED", res, err)
	}
	return true
}

// workUntilStopped leases tasks, eight at a time, and completes each with a result of that size,
// until no task is granted. It returns how many it has completed.
func (f *fullDisk) workUntilStopped(size int) (completed int) {
	f.t.Helper()
	completed, failed := f.workUntilRefused(size)
	if failed {
		f.t.Fatal("the store failed to take a result on a full disk, want COMMITTED")
	}
	return completed
}

// workUntilRefused is workUntilStopped for results so large that the free pieces of a store may all
// be too small for one, which ends the coordinator; see
// docs/decisions/0040-no-grants-on-a-full-disk.md. Then failed is true.
func (f *fullDisk) workUntilRefused(size int) (completed int, failed bool) {
	f.t.Helper()
	for {
		all := f.ask(patientQueue, 8)
		if len(all) == 0 {
			return completed, false
		}
		for _, a := range all {
			if !f.tryComplete(a, size) {
				return completed, true
			}
			completed++
		}
	}
}

// deleteAll deletes the tasks that wait, and those that are done.
func (f *fullDisk) deleteAll() {
	f.t.Helper()
	_, err := lessorv1.NewAdminServiceClient(f.c.Conn()).PurgeQueue(f.t.Context(),
		&lessorv1.PurgeQueueRequest{Name: patientQueue})
	if err != nil {
		f.t.Fatal(err)
	}
	_, err = lessorv1.NewTaskServiceClient(f.c.Conn()).BatchDeleteTasks(f.t.Context(), &lessorv1.BatchDeleteTasksRequest{
		Filter: &lessorv1.TaskFilter{Queue: patientQueue},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	time.Sleep(pollsOfFreeSpace)
}

// checkNoGrants checks that no task is granted, and that the coordinator says why.
func (f *fullDisk) checkNoGrants() {
	f.t.Helper()
	if got := f.ask(patientQueue, 1); len(got) > 0 {
		f.t.Errorf("with no room left, %v was granted, want nothing", got)
	}
	x, err := lessorv1.NewTaskServiceClient(f.c.Conn()).ExplainTask(f.t.Context(),
		&lessorv1.ExplainTaskRequest{TaskId: f.ids[len(f.ids)-1]})
	if err != nil || x.GetFindings()[0].GetCode() != lessorv1.FindingCode_FINDING_CODE_DISK_FULL {
		f.t.Errorf("ExplainTask: %v, error %v, want DISK_FULL", x, err)
	}
	s, err := lessorv1.NewAdminServiceClient(f.c.Conn()).GetStatus(f.t.Context(), &lessorv1.GetStatusRequest{})
	if err != nil || !s.GetGrantsStopped() {
		f.t.Errorf("GetStatus: %v, error %v, want that grants have stopped", s, err)
	}
}

// awaitGrants waits until tasks are granted again.
func (f *fullDisk) awaitGrants() {
	f.t.Helper()
	f.awaitStatus("no task is granted", (*lessorv1.GetStatusResponse).GetGrantsStopped)
}

// awaitStatus waits until the coordinator no longer says of itself that something holds.
func (f *fullDisk) awaitStatus(what string, holds func(*lessorv1.GetStatusResponse) bool) {
	f.t.Helper()
	admin := lessorv1.NewAdminServiceClient(f.c.Conn())
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		s, err := admin.GetStatus(f.t.Context(), &lessorv1.GetStatusRequest{})
		if err != nil {
			f.t.Fatal(err)
		}
		if !holds(s) {
			return
		}
	}
	f.t.Fatalf("after %v, %s", harness.Patience, what)
}

// checkCancel cancels the last of the tasks that wait.
func (f *fullDisk) checkCancel() {
	f.t.Helper()
	last := len(f.ids) - 1
	_, err := lessorv1.NewTaskServiceClient(f.c.Conn()).CancelTask(f.t.Context(),
		&lessorv1.CancelTaskRequest{TaskId: f.ids[last]})
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
