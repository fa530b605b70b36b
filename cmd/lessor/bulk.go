package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// bulkAnswer is the answer to a call that changes many tasks. Each call changes only a bounded
// number of them.
type bulkAnswer interface {
	proto.Message
	GetResult() *lessorv1.BatchResult
}

// changeAll repeats the call until no task is left to change. It reports the progress, and prints
// the last answer with the sums of all answers. If no task was selected, it returns the error of
// none, which may be nil. The error of a call says what was done before it.
func changeAll(
	a *app, done string, none func() error, call func(ctx context.Context, token string) (bulkAnswer, error),
) error {
	var changed, skipped uint64
	for token := ""; ; {
		answer, err := call(a.ctx, token)
		if err != nil {
			return afterChanges(err, done, changed, skipped)
		}
		result := answer.GetResult()
		changed, skipped = changed+result.GetChanged(), skipped+result.GetSkipped()
		if token = result.GetNextPageToken(); token != "" {
			// a call that has only looked at tasks, of which there may be millions, says nothing
			if result.GetChanged() > 0 || result.GetSkipped() > 0 {
				a.note("%s so far", sumText(done, changed, skipped))
			}
			continue
		}
		if none != nil && changed == 0 && skipped == 0 {
			if err := none(); err != nil {
				return err
			}
		}
		result.Changed, result.Skipped = changed, skipped
		return printChange(a, answer, sumText(done, changed, skipped))
	}
}

// afterChanges adds to the error of a call what was done before it ended: by the calls before, and
// by this one, if the coordinator says so. If the answer has been lost, or may come too early for
// the last step of the call, there may be more.
func afterChanges(err error, done string, changed, skipped uint64) error {
	part, _ := strconv.ParseUint(detail.Of[*errdetails.ErrorInfo](status.Convert(err)).GetMetadata()["changed"], 10, 64)
	changed += part
	more, sum := part > 0 || onlyTryMayBeDone(err), sumText(done, changed, skipped)
	switch {
	case changed+skipped == 0 && !more:
		return err
	case changed+skipped == 0:
		sum = "perhaps some " + done
	case more:
		sum = "at least " + sum
	}
	f := *explain(err)
	f.text = sum + ", then: " + f.text
	f.hint = strings.TrimPrefix(f.hint+"; then the same command goes on with the rest", "; then ")
	return &f
}

// sumText says how many tasks were changed, and how.
func sumText(done string, changed, skipped uint64) string {
	text := fmt.Sprintf("%d %s", changed, done)
	if skipped > 0 {
		text += fmt.Sprintf(", %d skipped", skipped)
	}
	return text
}
