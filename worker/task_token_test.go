package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// H1: TaskToken returns the token of the assignment, and after a renewal the token in its answer,
// if that expires later than the one before.
func TestTaskTokenIsTheNewest(t *testing.T) {
	t.Attr("rules", "H1")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		begun := time.Now()
		want := func(task *worker.Task, token string, minutes int) {
			t.Helper()
			got, expires := task.TaskToken()
			if got != token || !expires.Equal(begun.Add(time.Duration(minutes)*time.Minute)) {
				t.Errorf("the token is %q until %v, want %q until minute %d", got, expires.Sub(begun), token, minutes)
			}
		}
		r := c.run(worker.Config{}, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			if task.CallbackURL != "http://coordinator" {
				t.Errorf("CallbackURL = %q, want %q", task.CallbackURL, "http://coordinator")
			}
			want(task, "lst_first", 60)
			for _, minutes := range []int{90, 90, 90} { // the second answer has an older token, and the third has none
				if err := task.Confirm(ctx, time.Second); err != nil {
					t.Error(err)
				}
				want(task, "lst_second", minutes)
			}
			return nil, nil
		})
		s := c.accept()
		d := dispatchOf("t1")
		given := d.GetDispatch().GetAssignments()[0]
		given.TaskToken, given.TokenExpiresAt = "lst_first", timestamppb.New(begun.Add(time.Hour))
		given.CallbackBaseUrl = "http://coordinator"
		s.send(d)
		s.started("t1")
		for _, ack := range []*lessorv1.LeaseAck{
			{TaskToken: "lst_second", TokenExpiresAt: timestamppb.New(begun.Add(90 * time.Minute))},
			{TaskToken: "lst_first", TokenExpiresAt: timestamppb.New(begun.Add(time.Hour))},
			{},
		} {
			ack.Verdict, ack.ExpiresIn = lessorv1.Verdict_VERDICT_COMMITTED, durationpb.New(ttl)
			s.acknowledge(s.renewal(), ack)
		}
		f, _ := s.outcome()
		s.commit(f)
		r.shutdown()
	})
}
