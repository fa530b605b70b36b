package main

import (
	"bytes"
	"strings"
	"testing"
)

// A setting that is out of its range is refused with the flag that sets it.
func TestRefusedSettingsNameTheirFlags(t *testing.T) {
	for flag, value := range map[string]string{
		"--limit-payload": "1GiB", "--limit-output": "1GiB", "--limit-checkpoint": "1GiB", "--limit-discarded": "1GiB", "--limit-batch": "10001",
		"--audit-retention": "1m", "--backup-timeout": "1ms", "--backup-stall": "1ms", "--task-token-ttl": "3h", "--callback-url": "there",
		"--max-connections": "1", "--session-heartbeat-interval": "1ms", "--session-idle-timeout": "1s", "--session-send-timeout": "1ms",
		"--session-resource-wait": "1ms", "--health-mem": "5", "--health-disk": "5", "--health-missed": "1", "--health-saturated-after": "25h",
	} {
		args := []string{"serve", "--data", "none", "--listen", "", "--max-connections-of-address", "2", flag, value} // --listen is checked last
		var out bytes.Buffer
		code := run(args, streams{err: &out})
		if code != exitUsage || !strings.Contains(out.String(), "\nerror: "+flag+": ") { // after the record of the log
			t.Errorf("%s %s: exit code %d, %q; want %d and the flag", flag, value, code, out.String(), exitUsage)
		}
	}
}
