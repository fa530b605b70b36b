package convert

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
	"github.com/lessor-dev/lessor/lease"
)

// A spec is either refused with the name of a field, or converted with all its defaults: a second
// Fill does not change it.
func FuzzSpec(f *testing.F) {
	for _, m := range []*lessorv1.TaskSpec{
		{Queue: "q"},
		{Queue: "q", Priority: -1, Labels: map[string]string{"": ""}, ConcurrencyKey: "k", ConcurrencyLimit: 1 << 31},
		{Queue: "q", Requirements: &lessorv1.Requirements{Runtimes: []string{"r", "r"}}, RetryPolicy: &lessorv1.RetryPolicy{BackoffMultiplier: -1}},
	} {
		raw, _ := proto.Marshal(m)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &lessorv1.TaskSpec{}
		if proto.Unmarshal(raw, m) != nil {
			return
		}
		s, err := ParseSpec(m, lease.DefaultLimits())
		if err != nil {
			if field := (*lease.FieldError)(nil); !errors.As(err, &field) || field.Field == "" {
				t.Errorf("%v: %v names no field", m, err)
			}
			return
		}
		before, _ := ParseSpec(m, lease.DefaultLimits()) // a copy of s
		if err := s.Fill(lease.DefaultLimits()); err != nil {
			t.Errorf("%v: the second Fill returned %v, the first no error", m, err)
		}
		if !reflect.DeepEqual(s, before) {
			t.Errorf("%v: the second Fill changed %+v to %+v", m, before, s)
		}
	})
}

// A filter matches a task if and only if each of its fields does.
func FuzzFilter(f *testing.F) {
	for _, m := range []*lessorv1.TaskFilter{
		{},
		{Queue: "q"},
		{Queue: "p"},
		{ConcurrencyKey: "k"},
		{ConcurrencyKey: "l"},
		{IdempotencyKey: "i", WorkerId: "w", CreatedAfter: at(60), CreatedBefore: at(61)},
		{IdempotencyKey: "j"},
		{WorkerId: "v"},
		{CreatedAfter: at(61)},
		{CreatedBefore: at(60)},
		{FinishedAfter: at(70), FinishedBefore: at(71), Reasons: []lessorv1.Reason{lessorv1.Reason_REASON_START_TIMEOUT}},
		{FinishedAfter: at(71)},
		{FinishedBefore: at(70)},
		{Reasons: []lessorv1.Reason{lessorv1.Reason_REASON_TASK_CANCELLED}},
		{ErrorCategories: []lessorv1.ErrorCategory{lessorv1.ErrorCategory_ERROR_CATEGORY_DATA_QUALITY, lessorv1.ErrorCategory_ERROR_CATEGORY_TIMEOUT}},
		{ErrorCategories: []lessorv1.ErrorCategory{lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE}},
		{RunId: "r", Type: "t", Labels: map[string]string{"a": "1"}},
		{Labels: map[string]string{"a": "", "b": ""}},
		{States: []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_READY}},
		{States: []lessorv1.TaskState{99, -1}},
	} {
		raw, _ := proto.Marshal(m)
		f.Add(raw)
	}
	spec := &lease.Spec{
		Queue: "q", Type: "t", RunID: "r", ConcurrencyKey: "k", IdempotencyKey: "i",
		Labels: map[string]string{"a": "1", "c": ""},
	}
	if err := spec.Fill(lease.DefaultLimits()); err != nil {
		f.Fatal(err)
	}
	task := &lease.Task{
		Spec: spec, CreatedAt: 60e9, FinishedAt: 70e9, Reason: lease.StartTimeout, Rest: lease.Failed,
		ErrorCategory: lease.Timeout, Last: lease.Ended{Worker: "w"},
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &lessorv1.TaskFilter{}
		if proto.Unmarshal(raw, m) != nil {
			return
		}
		check := &Fields{Limits: lease.DefaultLimits()}
		want := ParseFilter(check, m)
		if check.Err != nil {
			return
		}
		selects := (m.GetQueue() == "" || m.GetQueue() == "q") && (m.GetType() == "" || m.GetType() == "t") &&
			(m.GetRunId() == "" || m.GetRunId() == "r") &&
			m.GetHostNodeId() == "" && (m.GetConcurrencyKey() == "" || m.GetConcurrencyKey() == "k") &&
			(m.GetIdempotencyKey() == "" || m.GetIdempotencyKey() == "i") && (m.GetWorkerId() == "" || m.GetWorkerId() == "w") &&
			(m.CreatedAfter == nil || !m.GetCreatedAfter().AsTime().After(at(60).AsTime())) &&
			(m.CreatedBefore == nil || m.GetCreatedBefore().AsTime().After(at(60).AsTime())) &&
			(m.FinishedAfter == nil || !m.GetFinishedAfter().AsTime().After(at(70).AsTime())) &&
			(m.FinishedBefore == nil || m.GetFinishedBefore().AsTime().After(at(70).AsTime())) &&
			(len(m.GetReasons()) == 0 || slices.Contains(m.GetReasons(), lessorv1.Reason_REASON_START_TIMEOUT)) &&
			(len(m.GetErrorCategories()) == 0 ||
				slices.Contains(m.GetErrorCategories(), lessorv1.ErrorCategory_ERROR_CATEGORY_TIMEOUT))
		for k, v := range m.GetLabels() {
			selects = selects && (k == "a" && v == "1" || k == "c" && v == "")
		}
		for i, s := range m.GetStates() {
			if s == lessorv1.TaskState(task.State()) {
				break
			}
			selects = selects && i+1 < len(m.GetStates())
		}
		if want.Matches(task) != selects {
			t.Errorf("the filter %v matches: %v, want %v", m, !selects, selects)
		}
	})
}

// If a request cannot be decoded because a string is not valid UTF-8, the error names the field of
// that string.
func FuzzInvalidUTF8(f *testing.F) {
	raw, _ := proto.Marshal(&lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q", Labels: map[string]string{"k": "v"}}})
	f.Add(raw)
	f.Add(bytes.ReplaceAll(raw, []byte("k"), []byte("\xff")))
	f.Add([]byte{0x0a, 0x03, 0x0a, 0x01, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &lessorv1.SubmitTaskRequest{}
		err := Codec{wire.NewCodec()}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, m)
		path := invalidUTF8(m.ProtoReflect().Descriptor(), raw)
		if err == nil && path != "" {
			t.Errorf("%x is decoded, although %s is not valid UTF-8", raw, path)
		}
		var field *lease.FieldError
		if errors.As(err, &field) && (field.Field != path || !utf8.ValidString(field.Error())) {
			t.Errorf("%x: the error is %v, want one of the field %s", raw, err, path)
		}
	})
}
