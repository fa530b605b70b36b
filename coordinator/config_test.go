package coordinator

import (
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/store/standby"
)

// The smallest allowed times of a backup are 1 s.
func TestTimesOfABackup(t *testing.T) {
	for _, tt := range []struct {
		b  Backup
		ok bool
	}{
		{Backup{}, true},
		{Backup{Timeout: time.Second, Stall: time.Second}, true},
		{Backup{Timeout: time.Second - 1}, false},
		{Backup{Stall: time.Second - 1}, false},
		{Backup{Stall: -time.Second}, false},
	} {
		tt.b.fill()
		if err := tt.b.validate(); (err == nil) != tt.ok {
			t.Errorf("%+v: %v, want it to be valid: %v", tt.b, err, tt.ok)
		}
	}
}

// The settings for standbys cannot be negative.
func TestSettingsForStandbys(t *testing.T) {
	for _, o := range []standby.Options{{Buffer: -1}, {Hold: -1}, {Check: -1}, {Wait: -1}} {
		if err := (Config{Standbys: o}).Validate(); err == nil {
			t.Errorf("%+v is valid", o)
		}
	}
}

// The zero Config is valid and gets the defaults. The error for a limit out of range names the limit.
func TestConfig(t *testing.T) {
	var c Config
	c.fill()
	if err := c.validate(); err != nil || c.Limits.Payload != 1<<20 || c.Logger == nil || c.maxMessage() != 4<<20 {
		t.Errorf("the zero config becomes %+v (%v), want the defaults", c, err)
	}
	c.Limits.Batch = -1
	if err := c.validate(); err == nil || !strings.Contains(err.Error(), "the batch limit is -1 tasks") {
		t.Errorf("the error is %v, want one that names the batch limit", err)
	}
}
