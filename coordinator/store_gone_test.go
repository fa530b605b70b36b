package coordinator

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A store whose file was moved away is told once in the log, and by /readyz for as long as it lasts; calls are answered all the same.
func TestAStoreThatIsGoneIsTold(t *testing.T) {
	var gone atomic.Bool
	serveWith(t, nil, Config{StoreGone: gone.Load}, func(t *testing.T, r *rig) {
		for _, is := range []bool{false, true, false} {
			gone.Store(is)
			time.Sleep(3 * placeEvery)
			synctest.Wait()
			code, want := http.StatusOK, "ready\n"
			if is {
				code, want = http.StatusServiceUnavailable, "not ready: "+storeGone+"\n"
			}
			if text := httpGet(t, r, "/readyz", code); text != want {
				t.Errorf("gone %v: /readyz says %q", is, text)
			}
			if metrics := httpGet(t, r, "/metrics", http.StatusOK); strings.Contains(metrics, "\nlessor_store_gone 1\n") != is {
				t.Errorf("gone %v: the metrics say something else", is)
			}
			r.submit(t, nil)
		}
		log := r.log.String()
		if strings.Count(log, storeGone) != 1 || strings.Count(log, "in its place again") != 1 {
			t.Errorf("the log: %s", log)
		}
	})
}
