package coordinator

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// If the store's file was moved or removed, the log says so once, and /readyz and the metrics say so until the file is back. Calls still work.
func TestMissingStoreFileIsReported(t *testing.T) {
	var gone atomic.Bool
	serveWith(t, nil, Config{StoreGone: gone.Load}, func(t *testing.T, r *rig) {
		for _, isGone := range []bool{false, true, false} {
			gone.Store(isGone)
			time.Sleep(3 * storeCheckInterval)
			synctest.Wait()
			code, want := http.StatusOK, "ready\n"
			if isGone {
				code, want = http.StatusServiceUnavailable, "not ready: "+storeGone+"\n"
			}
			if text := getPath(t, r, "/readyz", code); text != want {
				t.Errorf("gone %v: /readyz says %q, want %q", isGone, text, want)
			}
			if metrics := getPath(t, r, "/metrics", http.StatusOK); strings.Contains(metrics, "\nlessor_store_gone 1\n") != isGone {
				t.Errorf("gone %v: lessor_store_gone is %v", isGone, !isGone)
			}
			r.submit(t, nil)
		}
		log := r.log.String()
		if strings.Count(log, storeGone) != 1 || strings.Count(log, "back in its place") != 1 {
			t.Errorf("the log does not have the loss and the return of the file exactly once: %s", log)
		}
	})
}
