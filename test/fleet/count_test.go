//go:build faults

package fleet

import (
	"fmt"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// count reads the outcomes in the history of every task.
func (f *fleet) count() {
	f.t.Helper()
	for _, t := range f.work.Read() {
		f.countTask(t)
	}
}

// cutOff counts the attempts that were begun but whose leases ended without a report. It fails the
// test if there are none, because then the kill or pause hit nothing.
func (f *fleet) cutOff(starts map[attempt]int) (n int) {
	f.t.Helper()
	for a := range starts {
		if f.lost[a] == victim {
			n++
		}
	}
	if n == 0 {
		f.t.Error("no attempt of the victim was cut off by the kill or pause: the test shows nothing")
	}
	return n
}

func (f *fleet) countTask(t *lessorv1.Task) {
	completions := 0
	for _, e := range t.GetHistory() {
		switch {
		case isCompletion(e):
			completions++
			f.completedBy[attempt{t.GetTaskId(), e.GetAttempt()}] = e.GetActor()
		case e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED:
			f.lost[attempt{t.GetTaskId(), e.GetAttempt()}] = e.GetActor()
		}
	}
	if completions != 1 || t.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || t.GetHistoryDropped() > 0 {
		f.t.Errorf("A5: task %s is %v, and was completed %d times: %v", t.GetTaskId(), t.GetState(), completions, t.GetHistory())
	}
	if t.GetAttempt() > 1 {
		f.again++
	}
	f.outputs[t.GetTaskId()] = string(t.GetOutput())
}

func (f *fleet) String() string {
	by, lost := map[string]int{}, map[string]int{}
	for _, name := range f.completedBy {
		by[name]++
	}
	for _, name := range f.lost {
		lost[name]++
	}
	return fmt.Sprintf("each committed exactly once, %d by the victim, %d by the survivor; the victim lost %d leases, "+
		"the survivor %d; %d tasks were granted again", by[victim], by[survivor], lost[victim], lost[survivor], f.again)
}
