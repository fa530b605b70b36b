package gate

import (
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lessor-dev/lessor/coordinator/quota"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// X4: docs/security.md names the audited calls.
func TestTheManualShowsWhatIsAudited(t *testing.T) {
	t.Attr("rules", "X4")
	manual, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(manual), "These calls leave one")
	list, _, _ = strings.Cut(list, "\n\nA call by a filter")
	var shown, known []string
	for _, m := range regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(list, -1) {
		shown = append(shown, m[1])
	}
	for method := range audited {
		known = append(known, path.Base(method))
	}
	slices.Sort(shown)
	slices.Sort(known)
	if !slices.Equal(shown, known) {
		t.Errorf("docs/security.md names %q, audited are %q", shown, known)
	}
}

// X4: of a long list or map, an entry looks only at what it keeps: its text is the same as if it
// looked at all.
func TestEntriesOfLongRequests(t *testing.T) {
	t.Attr("rules", "X4")
	weights, labels, states := map[string]float64{}, map[string]string{}, make([]lessorv1.TaskState, 5000)
	for i := range 5000 {
		weights[fmt.Sprint("k", i)], labels[fmt.Sprint("k", i)] = 1, ""
	}
	for _, req := range []proto.Message{
		&lessorv1.UpdateQueueRequest{Paused: new(bool), FairnessWeights: weights, MaxInflight: new(uint32)},
		&lessorv1.BatchDeleteTasksRequest{Filter: &lessorv1.TaskFilter{Type: "t", Labels: labels}, Force: true},
		&lessorv1.BatchDeleteTasksRequest{Filter: &lessorv1.TaskFilter{Type: "t", States: states}, Force: true},
	} {
		short := excerpt(req.ProtoReflect()).Interface()
		clip := func(m proto.Message) string { return lease.Clip(words(m), maxAuditDetail) }
		if got, want := clip(short), clip(req); got != want || proto.Size(short) > proto.Size(req)/5 {
			t.Errorf("the entry says %q, and looks at %d of %d bytes; want %q", got, proto.Size(short), proto.Size(req), want)
		}
	}
	for method := range audited { // excerpt knows no other order than that of strings
		name := protoreflect.FullName(strings.ReplaceAll(method[1:], "/", "."))
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		fields := d.(protoreflect.MethodDescriptor).Input().Fields()
		for i := range fields.Len() {
			if f := fields.Get(i); f.IsMap() && f.MapKey().Kind() != protoreflect.StringKind {
				t.Errorf("the keys of %s are %v, want strings", f.FullName(), f.MapKey().Kind())
			}
		}
	}
}

// X4: what an entry keeps of a request is UTF-8, even if the request is not. Otherwise the audit
// could not be read.
func TestEntriesAreUTF8(t *testing.T) {
	t.Attr("rules", "X4")
	req := &lessorv1.CancelTaskRequest{TaskId: "t\xff", Reason: "r\xff", RequestId: strings.Repeat("\xffc", maxAuditID)}
	a := newEntry(t.Context(), Identity{}, lessorv1.TaskService_CancelTask_FullMethodName, req)
	for what, text := range map[string]string{"object": a.Object, "detail": a.Detail, "corr": a.Corr} {
		if !utf8.ValidString(text) || len(text) > maxAuditDetail {
			t.Errorf("the %s is %q, want at most %d bytes of UTF-8", what, text, maxAuditDetail)
		}
	}
	if want := "t\ufffd"; a.Object != want {
		t.Errorf("the object is %q, want %q", a.Object, want)
	}
}

// X4, W13: what became of a package is in the audit also if its entry cannot be written at once:
// the worker has no reason to tell it again.
func TestEndOfAPackageOperationIsNotLost(t *testing.T) {
	t.Attr("rules", "X4 W13")
	g, said, _ := newGate(t, quota.Config{}, false)
	stop := g.trail.Start()
	said.err = errors.New("overloaded")
	for _, asked := range []bool{true, false} {
		g.AuditPackage(t.Context(), "w", &lessorv1.PkgEvent{Name: "a", Version: fmt.Sprint(asked), OperationId: "op"}, "", asked)
	}
	said.err = nil
	stop()
	if len(said.outcomes) != 1 || said.outcomes[0] != "PkgEvent OK" {
		t.Errorf("the audit is %q, want the sum of both ends", said.outcomes)
	}
}
