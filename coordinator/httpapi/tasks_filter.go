package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/strictjson"
	"github.com/lessor-dev/lessor/internal/words"
)

// conditions are those of a TaskFilter but the labels, which a URL and a body have in different
// forms. The times are pointers, so that the zero time is not taken for one that was left out.
type conditions struct {
	WorkspaceID     string   `json:"workspaceId"`
	Queue           string   `json:"queue"`
	States          []string `json:"states"`
	RunID           string   `json:"runId"`
	Type            string   `json:"type"`
	HostNodeID      string   `json:"hostNodeId"`
	ConcurrencyKey  string   `json:"concurrencyKey"`
	IdempotencyKey  string   `json:"idempotencyKey"`
	WorkerID        string   `json:"workerId"`
	CreatedAfter    *instant `json:"createdAfter"`
	CreatedBefore   *instant `json:"createdBefore"`
	FinishedAfter   *instant `json:"finishedAfter"`
	FinishedBefore  *instant `json:"finishedBefore"`
	Reasons         []string `json:"reasons"`
	ErrorCategories []string `json:"errorCategories"`
}

// proto converts the conditions. The gRPC call checks their content.
func (m *conditions) proto() (*lessorv1.TaskFilter, *problem) {
	f := &lessorv1.TaskFilter{
		WorkspaceId:    m.WorkspaceID,
		Queue:          m.Queue,
		RunId:          m.RunID,
		Type:           m.Type,
		HostNodeId:     m.HostNodeID,
		ConcurrencyKey: m.ConcurrencyKey,
		IdempotencyKey: m.IdempotencyKey,
		WorkerId:       m.WorkerID,
		CreatedAfter:   timeLimit(m.CreatedAfter),
		CreatedBefore:  timeLimit(m.CreatedBefore),
		FinishedAfter:  timeLimit(m.FinishedAfter),
		FinishedBefore: timeLimit(m.FinishedBefore),
	}
	for i, name := range m.States {
		state, known := words.StateNamed(name)
		if !known {
			return nil, invalid(fmt.Sprintf("states[%d]", i), "is %q, which is not a state; they are %s",
				strictjson.Clip(name), strings.Join(words.StateNames(), ", "))
		}
		f.States = append(f.States, state)
	}
	for i, name := range m.Reasons {
		reason, known := words.EndReasonNamed(name)
		if !known {
			return nil, invalid(fmt.Sprintf("reasons[%d]", i),
				"is %q, for which no task ends; the reasons are %s", strictjson.Clip(name),
				strings.Join(words.EndReasonNames(), ", "))
		}
		f.Reasons = append(f.Reasons, reason)
	}
	for i, name := range m.ErrorCategories {
		category, known := words.CategoryNamed(name)
		if !known {
			return nil, unknownCategory(fmt.Sprintf("errorCategories[%d]", i), name)
		}
		f.ErrorCategories = append(f.ErrorCategories, category)
	}
	return f, nil
}

func timeLimit(t *instant) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(t.Time)
}

// taskFilter is a TaskFilter in a body.
type taskFilter struct {
	conditions
	Labels map[string]string `json:"labels"`
	blank  []string          // names of conditions that are null or empty
}

// blanks are the values that count as blank.
var blanks = []string{"null", `""`, "[]", "{}"}

// UnmarshalJSON reads a filter, and notes which conditions are blank: package json cannot tell them
// from those that were left out.
func (m *taskFilter) UnmarshalJSON(raw []byte) error {
	type plain taskFilter // without this method
	if err := json.Unmarshal(raw, (*plain)(m)); err != nil {
		return err
	}
	var sent map[string]json.RawMessage
	if err := json.Unmarshal(raw, &sent); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		var value bytes.Buffer
		_ = json.Compact(&value, sent[name]) // it is JSON
		if slices.Contains(blanks, value.String()) {
			m.blank = append(m.blank, name)
		}
	}
	return nil
}

// proto converts the filter. A blank condition is refused: it may come from a variable that is not
// set, and the filter would select more than it should.
func (m *taskFilter) proto() (*lessorv1.TaskFilter, *problem) {
	if len(m.blank) > 0 {
		return nil, invalid(m.blank[0], "must not be empty or null; leave it out")
	}
	f, p := m.conditions.proto()
	if p == nil {
		f.Labels = m.Labels
	}
	return f, p
}
