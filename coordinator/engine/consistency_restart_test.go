package engine

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// checkRestart checks that an engine that starts now from the store knows what this one knows: each
// version of a task, and everything that is kept in memory for more than the time of a connection.
// It expects that nothing is under way.
func (r *rig) checkRestart() {
	r.Helper()
	for _, problem := range onLoop(r, func() []string {
		r.pipeline.flush()
		i := &inspection{Engine: r.Engine, tasks: map[lease.TaskID]*lease.Task{}}
		i.collect()
		i.compareWithRestart()
		return i.problems
	}) {
		r.Error(problem)
	}
}

func (i *inspection) compareWithRestart() {
	next, err := Open(i.st, Config{})
	if err != nil {
		i.problem("a restart fails: %v", err)
		return
	}
	i.compareTasks()
	compare := func(what string, here, there any) {
		if diff := cmp.Diff(here, there, cmpopts.EquateEmpty()); diff != "" {
			i.problem("a restart changes %s (-before +after):\n%s", what, diff)
		}
	}
	if next.clock.base > i.now().Serving {
		i.problem("a restart begins at %d of the serving clock, and it is %d", next.clock.base, i.now().Serving)
	}
	compare("the counts of all tasks", i.spaces.total.String(), next.spaces.total.String())
	compare("the number of live leases", i.set.live, next.set.live)
	compare("the counts of each tenant", i.countsOfTenants(), next.countsOfTenants())
	compare("the workspaces", i.spaceRecords(), next.spaceRecords())
	compare("the queues", i.queueStates(), next.queueStates())
	compare("the concurrency keys", i.keyStates(), next.keyStates())
	compare("the affinity keys", i.heldBindings(), next.heldBindings())
	compare("the leases of each instance", i.leasesOfInstances(), next.leasesOfInstances())
	compare("the leases of workers without a stream", i.unaryLeases(), next.unaryLeases())
	compare("the unary requests", i.leasesOfRequests(), next.leasesOfRequests())
	compare("the timers of leases on the serving clock", leasedTimers(i.timers.serving), leasedTimers(next.timers.serving))
	compare("the timers of leases on the wall clock", leasedTimers(i.timers.wall), leasedTimers(next.timers.wall))
}

// mostCompared bounds how many tasks are compared at once: it takes long.
const mostCompared = 50

// compareTasks compares the versions of tasks with what the store has of them. The payload may be
// in memory or not, and the lease id is not stored.
func (i *inspection) compareTasks() {
	plain := func(t *lease.Task) *lease.Task {
		copied, spec := *t, *t.Spec
		spec.Payload = nil
		copied.Spec = &spec
		if t.Lease != nil {
			l := *t.Lease
			l.ID = ""
			copied.Lease = &l
		}
		return &copied
	}
	err := i.st.View(func(r store.Reader) error {
		n := 0
		for id, t := range i.tasks {
			if n++; n > mostCompared {
				break
			}
			stored, err := records.Task(r, id)
			if err != nil {
				return err
			}
			here, there := plain(t), plain(stored)
			if reflect.DeepEqual(here, there) { // nearly always, and ten times as fast
				continue
			}
			if diff := cmp.Diff(here, there, cmpopts.EquateEmpty()); diff != "" {
				i.problem("task %v is not in the store as it is in memory (-memory +store):\n%s", id, diff)
			}
		}
		return nil
	})
	if err != nil {
		i.problem("read the tasks: %v", err)
	}
}

func (t *tally) String() string { return fmt.Sprint(t.counts, t.parked) }

// countsOfTenants returns what each tenant has, if it has anything.
func (e *Engine) countsOfTenants() map[string]string {
	all := map[string]string{}
	e.spaces.tenants.Scan(func(tenant string, n *tenantTally) bool {
		if *n != (tenantTally{}) {
			all[tenant] = fmt.Sprintf("%+v", *n)
		}
		return true
	})
	return all
}

func (e *Engine) spaceRecords() map[uint32]string {
	all := map[uint32]string{0: fmt.Sprint("the last one is ", e.spaces.last)}
	for number, s := range e.spaces.byNumber {
		all[number] = fmt.Sprintf("%v, next %d, lost %v", s.name, s.nextSeq, s.lost)
	}
	return all
}

// queueStates returns what is known of each queue that exists.
func (e *Engine) queueStates() map[string]any {
	all := map[string]any{}
	for _, s := range e.spaces.byName {
		for _, q := range s.queues {
			if q.createdAt == 0 {
				continue
			}
			all[fmt.Sprint(s.name, q.name)] = struct {
				Record   records.Queue
				Settings lease.Settings
			}{q.record(), *q.settings}
		}
	}
	return all
}

// keyStates returns the holders of each concurrency key.
func (e *Engine) keyStates() map[string]string {
	all := map[string]string{}
	for _, s := range e.spaces.byNumber {
		for _, k := range s.keys {
			if k.holders.Len() > 0 {
				all[fmt.Sprint(s.name, k.key)] = fmt.Sprint(slices.Collect(k.holders.Scan), k.state())
			}
		}
	}
	return all
}

func (e *Engine) heldBindings() map[string]map[string]int {
	all := map[string]map[string]int{}
	for _, s := range e.spaces.byNumber {
		for key, b := range s.bindings {
			if len(b.held) > 0 {
				all[fmt.Sprint(s.name, key)] = b.held
			}
		}
	}
	return all
}

// leasesOfInstances returns the leases of each instance, whether it has a session or not.
func (e *Engine) leasesOfInstances() map[string]map[lease.TaskID]uint32 {
	all := map[string]map[lease.TaskID]uint32{}
	for instance, leases := range e.sessions.orphans {
		all[instance] = maps.Clone(leases)
	}
	for session, t := range e.sessions.byID {
		for id, attempt := range t.leases {
			instance := lease.InstanceOf(session)
			if all[instance] == nil {
				all[instance] = map[lease.TaskID]uint32{}
			}
			all[instance][id] = attempt
		}
	}
	return all
}

func (e *Engine) unaryLeases() map[string]int {
	all := map[string]int{}
	for k, p := range e.workers.byKey {
		if p.leases > 0 {
			all[fmt.Sprint(k)] = p.leases
		}
	}
	return all
}

func (e *Engine) leasesOfRequests() map[string][]lease.TaskID {
	all := map[string][]lease.TaskID{}
	for k, r := range e.requests.byKey {
		if len(r.leases) > 0 {
			all[fmt.Sprint(k)] = slices.SortedFunc(slices.Values(r.leases), lease.TaskID.Compare)
		}
	}
	return all
}

func leasedTimers(tl *timeline) (all []string) {
	tl.leased.Scan(func(k timerKey) bool {
		all = append(all, fmt.Sprint(k))
		return true
	})
	return all
}
