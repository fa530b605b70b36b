package machine

import (
	"path"
	"strings"
	"time"
)

// cpuReading is how much CPU time was used so far, and how much was available in total.
type cpuReading struct{ used, total float64 }

// cpuSince returns how busy the machine and each of the groups were since the last call, in
// percent.
func (m *Meter) cpuSince(groups []string, now time.Time) (pcts []float64) {
	readings := make(map[string]cpuReading)
	if r, ok := m.cpuOfMachine(); ok {
		readings["proc"] = r
	}
	for _, group := range groups {
		if r, ok := m.cpuOfGroup(group, now); ok {
			readings[group] = r
		}
	}
	for name, r := range readings {
		if before, ok := m.cpu[name]; ok && r.total > before.total {
			pcts = append(pcts, percent(r.used-before.used, r.total-before.total))
		}
	}
	m.cpu = readings
	return pcts
}

// cpuOfMachine reads the line for all processors in proc/stat: the fourth and fifth number are idle
// time.
func (m *Meter) cpuOfMachine() (r cpuReading, ok bool) {
	line, _, _ := strings.Cut(m.readText("proc/stat"), "\n")
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[0] != "cpu" {
		return r, false
	}
	// guest time, which follows, is already part of the first two numbers
	for i, field := range fields[1:min(len(fields), 9)] {
		ticks, valid := parse(field)
		if !valid {
			return r, false
		}
		r.total += ticks
		if i != 3 && i != 4 {
			r.used += ticks
		}
	}
	return r, true
}

// cpuOfGroup reads the CPU time that a group used, and counts as available what its quota allows;
// ok is false if the group has no quota.
func (m *Meter) cpuOfGroup(group string, now time.Time) (r cpuReading, ok bool) {
	quota := strings.Fields(m.readText(path.Join(group, "cpu.max")))
	if len(quota) != 2 {
		return r, false
	}
	runtime, limited := parse(quota[0])
	period, parsed := parse(quota[1])
	used, counted := m.readTable(path.Join(group, "cpu.stat"))["usage_usec"]
	if !limited || !parsed || !counted || period <= 0 {
		return r, false
	}
	return cpuReading{used: used, total: float64(now.UnixMicro()) * runtime / period}, true
}
