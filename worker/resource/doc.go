// Package resource keeps things that live in a worker from one task to the next, such as a browser
// session or a loaded model.
//
// One task creates a resource, registers it, and names it in an artifact of its result. Later tasks
// that refer to it (TaskSpec.resource_refs) are granted only to this worker, and lease the
// resource. A leased resource is not closed. A resource without a lease is closed when its time to
// live is over; each lease, and each Touch, starts that time again. So its artifact has no
// ExpiresAt, and the references to it must have none: the coordinator would fail a task that waits
// longer, although the resource lives on.
//
//	browsers := resource.New(resource.Config{})
//	defer browsers.Close()
//	w.Handle("open", func(ctx context.Context, t *worker.Task) ([]byte, error) {
//		browser := start()
//		artifact, err := browsers.Register(resource.Resource{
//			ID: t.AttemptID, // not t.ID: an earlier attempt that lost its lease may have left its browser here
//			Type: "browser", Value: browser, TTL: 10 * time.Minute, Close: browser.Quit,
//		})
//		if err != nil {
//			return nil, errors.Join(err, browser.Quit())
//		}
//		t.AddArtifact(artifact)
//		return nil, nil
//	})
//	w.Handle("click", func(ctx context.Context, t *worker.Task) ([]byte, error) {
//		held, err := browsers.LeaseAll(t.Resources)
//		if err != nil {
//			return nil, worker.Permanent(err) // no other worker has it either
//		}
//		defer held.Release()
//		return click(held[0].Value().(*Browser))
//	})
//
// The registry lives in memory and ends with the process. So the worker's Config.Name must be
// unique to the process: if a new process has the same name, tasks that need resources of the old
// process are granted to it, and LeaseAll returns ErrNotFound.
package resource
