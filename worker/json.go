package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
)

// JSON returns a handler for payloads and outputs in JSON, as encoding/json reads and writes them.
// A payload that is no In, an empty one too, fails the task with DataQuality, without a call of h:
// another attempt would read the same. An output that cannot be encoded fails it for good
// (Permanent). In h, the payload as it came is still t.Payload. All else is as Handler has it. JSON
// panics if h is nil.
//
//	w.Handle("render", worker.JSON(func(ctx context.Context, t *worker.Task, o Order) (Page, error) {
//		return render(ctx, o)
//	}))
func JSON[In, Out any](h func(ctx context.Context, t *Task, in In) (Out, error)) Handler {
	if h == nil {
		panic("worker: nil handler")
	}
	return func(ctx context.Context, t *Task) ([]byte, error) {
		var in In
		if err := json.Unmarshal(t.Payload, &in); err != nil {
			return nil, WithCategory(DataQuality, fmt.Errorf("payload is no %s: %w", reflect.TypeFor[In](), err))
		}
		out, err := h(ctx, t, in)
		if err != nil {
			return nil, err
		}
		output, err := json.Marshal(out)
		if err != nil {
			return nil, Permanent(fmt.Errorf("output: %w", err))
		}
		return output, nil
	}
}
