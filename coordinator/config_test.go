package coordinator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
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

// The settings for standbys cannot be negative. The error names the one that is.
func TestSettingsForStandbys(t *testing.T) {
	for want, o := range map[string]standby.Options{
		"the buffer for standbys is -1 bytes; it cannot be negative":    {Buffer: -1},
		"the hold time for standbys is -1ns; it cannot be negative":     {Hold: -1},
		"the check interval of standbys is -1ns; it cannot be negative": {Check: -1},
		"the wait for standbys is -1ns; it cannot be negative":          {Wait: -1},
	} {
		if err := (Config{Standbys: o}).Validate(); err == nil || err.Error() != want {
			t.Errorf("the error of %+v is %v, want %q", o, err, want)
		}
	}
}

// The error names all settings that are out of range, and not only the first one.
func TestAllWrongSettingsAreNamed(t *testing.T) {
	err := Config{
		Limits: lease.Limits{Payload: -1, Batch: -1}, AuditRetention: -1, Backup: Backup{Timeout: -1, Stall: -1},
		Standbys: standby.Options{Buffer: -1, Wait: -1},
	}.Validate()
	if err == nil {
		t.Fatal("the settings are valid")
	}
	lines := strings.Split(err.Error(), "\n")
	wants := []string{
		"the payload limit is", "the batch limit is", "the audit retention is", "the backup timeout is", "the backup stall time is",
		"the buffer for standbys is", "the wait for standbys is",
	}
	if !slices.EqualFunc(lines, wants, strings.HasPrefix) {
		t.Errorf("the error is\n%v\nwant a line for each of %q", err, wants)
	}
}

// The zero Config is valid and gets the defaults. The error for a limit out of range names the
// limit.
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
