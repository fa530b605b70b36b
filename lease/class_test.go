package lease

import (
	"math"
	"reflect"
	"testing"
	"time"
)

// classes are specs of which no two may have the same class: for each two there is a worker that
// may take only one of their tasks.
var classes = []Spec{
	{},
	requiring(Requirements{Runtimes: []string{"a"}}),
	requiring(Requirements{Runtimes: []string{"a", "b"}}),
	requiring(Requirements{Runtimes: []string{"ab"}}),
	requiring(Requirements{Features: []string{"a"}}),
	requiring(Requirements{Runtimes: []string{"a"}, Features: []string{"b"}}),
	requiring(Requirements{Labels: map[string]string{"a": "b"}}),
	requiring(Requirements{Labels: map[string]string{"ab": ""}}),
	requiring(Requirements{Labels: map[string]string{"a": "b", "c": "d"}}),
	requiring(Requirements{Resources: map[string]float64{"a": 1}}),
	requiring(Requirements{Resources: map[string]float64{"a": math.Nextafter(1, 2)}}),
	requiring(Requirements{Resources: map[string]float64{"b": 1}}),
	requiring(Requirements{Package: "a"}),
	requiring(Requirements{Package: "a@b"}),
	requiring(Requirements{Runtimes: []string{"a"}, Package: "a"}),
	pinned(1, unchanged),
	pinned(1, func(r *ResourceRef) { r.Worker = "a" }),
	withAffinity(Affinity{Key: "a", Mode: Sticky}),
	withAffinity(Affinity{Key: "a", Mode: Preferred}),
	withAffinity(Affinity{Key: "b", Mode: Sticky}),
	{
		Requirements: &Requirements{
			Runtimes: []string{"a", "b"}, Features: []string{"c"}, Labels: map[string]string{"d": "e", "f": ""},
			Resources: map[string]float64{"g": 0.5}, Package: "h",
		},
		ResourceRefs: []ResourceRef{{ResourceID: "r", Worker: "w"}},
		Affinity:     &Affinity{Key: string(make([]byte, 300)), Mode: Sticky},
	},
}

// W12: specs that differ in requirements, pin or affinity have different classes, and Placement
// reads these three back from the class.
func TestDifferentPlacementsHaveDifferentClasses(t *testing.T) {
	t.Attr("rules", "W12")
	seen := map[Class]int{}
	for i := range classes {
		s := &classes[i]
		c := s.Class()
		if j, dup := seen[c]; dup {
			t.Errorf("specs %d and %d have the same class, want different ones", i, j)
		}
		seen[c] = i
		want := Placement{Worker: s.Pinned()}
		if s.Requirements != nil {
			want.Requirements = *s.Requirements
		}
		if s.Affinity != nil {
			want.Affinity, want.Mode = s.Affinity.Key, s.Affinity.Mode
		}
		if got := c.Placement(); !reflect.DeepEqual(got, want) {
			t.Errorf("spec %d: its class is read as %+v, want %+v", i, got, want)
		}
	}
}

// W12: two specs have the same class if every worker may take either both tasks or neither. Order
// and repetition of requirements, which resources the pin is for, and the TTL of the affinity do
// not count. Class does not modify the spec.
func TestEqualPlacementsHaveTheSameClass(t *testing.T) {
	t.Attr("rules", "W12")
	first := Spec{
		Requirements: &Requirements{Runtimes: []string{"a", "b"}, Features: []string{"c"}},
		ResourceRefs: []ResourceRef{{ResourceID: "r", Worker: "w", ExpiresAt: 5}},
		Affinity:     &Affinity{Key: "k", Mode: Sticky, TTL: time.Second},
		Trace:        &Trace{Host: "h"}, Priority: 3, ConcurrencyKey: "c", ConcurrencyLimit: 2,
	}
	second := Spec{
		Requirements: &Requirements{Runtimes: []string{"b", "a", "b"}, Features: []string{"c", "c"}, Labels: map[string]string{}},
		ResourceRefs: []ResourceRef{{ResourceID: "s", Worker: "w"}, {ResourceID: "t", Worker: "w"}},
		Affinity:     &Affinity{Key: "k", Mode: Sticky, TTL: time.Hour},
	}
	if first.Class() != second.Class() {
		t.Errorf("the classes are %q and %q, want the same", first.Class(), second.Class())
	}
	if got := second.Requirements.Runtimes; !reflect.DeepEqual(got, []string{"b", "a", "b"}) {
		t.Errorf("Class changed the runtimes of the spec to %q", got)
	}
	if empty := requiring(Requirements{}); empty.Class() != "" {
		t.Errorf("the class of empty requirements is %q, want the empty class", empty.Class())
	}
}

// Line is called for every READY task. It must not allocate for a task without requirements, pin
// and affinity: most tasks are like this.
func TestLineOfPlainTaskDoesNotAllocate(t *testing.T) {
	task := &Task{Spec: &Spec{Queue: "q", Type: "t", FairnessKey: "f", Trace: &Trace{Host: "h"}, ConcurrencyKey: "k"}}
	if n := testing.AllocsPerRun(100, func() { _ = task.Line() }); n != 0 {
		t.Errorf("the line of a plain task costs %v allocations, want 0", n)
	}
}
