// Package resource keeps what lives in a worker from one task to the next: a browser session, a loaded model.
//
// One task makes a resource, registers it, and names it in an artifact of its result; later tasks that refer to it
// (TaskSpec.resource_refs) are granted to this worker alone, and lease it. What is leased is not closed. What is not
// leased is closed when its time to live is over; each lease, and each Touch, begins that time anew.
//
//	browsers := resource.New(resource.Config{})
//	defer browsers.Close()
//	w.Handle("open", func(ctx context.Context, t *worker.Task) ([]byte, error) {
//		browser := start()
//		artifact, err := browsers.Register(resource.Resource{
//			ID: t.ID, Type: "browser", Value: browser, TTL: 10 * time.Minute, Close: browser.Quit,
//		})
//		if err != nil {
//			return nil, err
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
// The registry lives in memory and ends with the process. The worker's Config.Name has to be its own then: a worker that is
// started anew under the same name has none of what its predecessor promised, and such tasks come to ErrNotFound.
package resource
