package coordinator

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// If the store's file was moved away, the log says so once; /readyz and the metrics say so as long as it lasts. Calls still work.
func TestMissingStoreFileIsReported(t *testing.T) {
	var gone atomic.Bool
	serveWith(t, nil, Config{StoreGone: gone.Load}, func(t *testing.T, r *rig) {
		for _, is := range []bool{false, true, false} {
			gone.Store(is)
			time.Sleep(3 * storeCheckInterval)
			synctest.Wait()
			code, want := http.StatusOK, "ready\n"
			if is {
				code, want = http.StatusServiceUnavailable, "not ready: "+storeGone+"\n"
			}
			if text := getPath(t, r, "/readyz", code); text != want {
				t.Errorf("gone %v: /readyz says %q", is, text)
			}
			if metrics := getPath(t, r, "/metrics", http.StatusOK); strings.Contains(metrics, "\nlessor_store_gone 1\n") != is {
				t.Errorf("gone %v: the metrics say something else", is)
			}
			r.submit(t, nil)
		}
		log := r.log.String()
		if strings.Count(log, storeGone) != 1 || strings.Count(log, "back in its place") != 1 {
			t.Errorf("the log: %s", log)
		}
	})
}
