package coordinator_test

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/net/http2"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
)

// X5: the coordinator announces how many streams a connection may have. It closes a connection that
// pings too often, and the GOAWAY says why.
func TestConnectionThatPingsTooOftenIsClosed(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		conn, err := r.Listener.DialContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		framer := http2.NewFramer(conn, conn)
		if err := framer.WriteSettings(); err != nil {
			t.Fatal(err)
		}
		for range 4 { // three come too early; two are allowed
			if err := framer.WritePing(false, [8]byte{}); err != nil {
				t.Fatal(err)
			}
		}
		streams, why := uint32(0), ""
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				break
			}
			switch f := frame.(type) {
			case *http2.SettingsFrame:
				if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
					streams = n
				}
			case *http2.GoAwayFrame:
				why = f.ErrCode.String() + " " + string(f.DebugData())
			}
		}
		if want := "ENHANCE_YOUR_CALM too_many_pings"; why != want || streams != coordinator.MaxStreams {
			t.Errorf("%d streams are allowed and the GOAWAY is %q, want %d and %q", streams, why, coordinator.MaxStreams, want)
		}
	})
}
