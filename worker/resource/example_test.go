package resource_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/resource"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// model stands for something that takes long to load and then answers many questions.
type model struct{ name string }

func (m *model) answer(question []byte) []byte { return append([]byte(m.name+" says "), question...) }

// W12: a task loads a model and names it in its result as an artifact. The next task refers to the
// artifact, and so is given to the worker that holds the model, although another worker has more
// free slots. When nobody has used the model for its TTL it is closed.
func TestModelFromTaskToTask(t *testing.T) {
	t.Attr("rules", "W12")
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		models := resource.New(resource.Config{})
		defer func() { _ = models.Close() }()
		unloaded := make(chan struct{})

		holder := c.Worker("q", worker.Config{Name: "holder"})
		holder.Handle("load", func(_ context.Context, task *worker.Task) ([]byte, error) {
			artifact, err := models.Register(resource.Resource{
				ID: task.AttemptID, Type: "model", Value: &model{name: "m1"}, TTL: 10 * time.Minute,
				Close: func() error { close(unloaded); return nil },
			})
			if err == nil {
				task.AddArtifact(artifact)
			}
			return nil, err
		})
		holder.Handle("ask", func(_ context.Context, task *worker.Task) ([]byte, error) {
			held, err := models.LeaseAll(task.Resources)
			if err != nil {
				return nil, worker.Permanent(err)
			}
			defer held.Release()
			return held[0].Value().(*model).answer(task.Payload), nil
		})
		c.Run(holder)
		loaded := c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "load"})
		artifact := loaded.GetArtifacts()[0]
		if artifact.GetWorkerId() != "holder" || artifact.GetType() != "model" || artifact.GetExpiresAt() != nil {
			t.Errorf("artifact = %v, want worker holder, type model and no expiry: each use moves the end", artifact)
		}

		other := c.Worker("q", worker.Config{Name: "other", Concurrency: 8})
		other.Handle("ask", func(context.Context, *worker.Task) ([]byte, error) { return []byte("who?"), nil })
		c.Run(other)
		ask := &lessorv1.TaskSpec{Queue: "q", Type: "ask", Payload: []byte("hello"), ResourceRefs: []*lessorv1.ResourceRef{{
			ResourceId: artifact.GetResourceId(), WorkerId: artifact.GetWorkerId(), Type: artifact.GetType(),
		}}}
		for range 4 { // until long after the first TTL
			time.Sleep(4 * time.Minute)
			answer := c.Do(ask)
			if got := string(answer.GetOutput()); got != "m1 says hello" {
				t.Errorf("answer = %q, want %q, the answer of the model", got, "m1 says hello")
			}
		}
		time.Sleep(11 * time.Minute)
		select {
		case <-unloaded:
		default:
			t.Error("the model was not closed 11m after its last use, with a TTL of 10m")
		}
	})
}
