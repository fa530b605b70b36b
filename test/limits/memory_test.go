package limits

import (
	"reflect"
	"strings"
	"unsafe"

	"github.com/lessor-dev/lessor/coordinator"
)

// emptied is what the engine keeps in memory of tasks and workers: nothing is left in it when all
// of them are gone. Each is a map, a list, a set or a number.
var emptied = []string{
	"intake.taken", "set.tasks", "set.live", "set.ledger", "set.keys", "set.discards", "timers.serving.leased", "timers.serving.rest.entries",
	"timers.wall.leased", "timers.wall.rest.entries", "alarms.set", "sessions.byID", "sessions.current", "sessions.orphans", "requests.byKey",
	"workers.takers", "requests.toAnswer", "workers.byKey", "agenda.queues.len", "parking.roomy", "agenda.throttled", "lines.readings",
	"pipeline.inflight", "hub.tasks", "hub.runs", "hub.ends", "hub.recent", "hub.output",
}

// emptiedOfSpaces is the same of each workspace.
var emptiedOfSpaces = []string{"keys", "blockers", "bindings", "affinityLines"}

// emptiedOfQueues is the same of each queue that is left because something was set on it.
var emptiedOfQueues = []string{"attending", "available", "waiting"}

// checkMemory checks that nothing is left in the memory of a coordinator that has stopped.
func (w *world) checkMemory(c *coordinator.Coordinator) {
	w.Helper()
	engine := field(w, reflect.ValueOf(c), "engine")
	w.checkEmpty("", engine, emptied)
	for _, space := range field(w, engine, "spaces.byNumber").Seq2() {
		w.checkEmpty("a workspace: ", space, emptiedOfSpaces)
		for _, queue := range field(w, space, "queues").Seq2() {
			w.checkEmpty("a queue: ", queue, emptiedOfQueues)
		}
	}
}

func (w *world) checkEmpty(of string, v reflect.Value, paths []string) {
	w.Helper()
	for _, path := range paths {
		if n := size(field(w, v, path)); n != 0 {
			w.problem("%s%d are left in %s, although all tasks and workers are gone", of, n, path)
		}
	}
}

// field returns the value of a field of a struct, or of a field of that, and so on.
func field(w *world, v reflect.Value, path string) reflect.Value {
	w.Helper()
	for _, name := range strings.Split(path, ".") {
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		f := v.FieldByName(name)
		if !f.IsValid() {
			w.Fatalf("%v has no field %s", v.Type(), name)
		}
		v = reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem() // as if it were exported
	}
	return v
}

// size returns the length of a map, a list or a set, or a number, which is in a field.
func size(v reflect.Value) int {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len()
	case reflect.Int:
		return int(v.Int())
	}
	if v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		return v.Interface().(interface{ Len() int }).Len()
	}
	return v.Addr().Interface().(interface{ Len() int }).Len()
}
