package machine

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

const cgroupRoot = "sys/fs/cgroup"

// cgroups returns the directories of the cgroup of this process and of all cgroups around it,
// innermost first.
func (m *Meter) cgroups() (dirs []string) {
	for line := range strings.Lines(m.readText("proc/self/cgroup")) {
		own, found := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !found {
			continue
		}
		for own = path.Clean("/" + own); own != "/"; own = path.Dir(own) {
			dirs = append(dirs, path.Join(cgroupRoot, own))
		}
		return append(dirs, cgroupRoot) // in a container, the root directory is the container's own cgroup
	}
	return nil
}

// readText returns the content of a file; empty if it cannot be read.
func (m *Meter) readText(name string) string {
	data, err := fs.ReadFile(m.root, name)
	if err != nil {
		return ""
	}
	return string(data)
}

// readNumber reads a file that contains one number; false if there is no such file or it contains
// "max".
func (m *Meter) readNumber(name string) (float64, bool) {
	return parse(strings.TrimSpace(m.readText(name)))
}

// readTable reads a file whose lines contain a name and a number.
func (m *Meter) readTable(name string) map[string]float64 {
	table := make(map[string]float64)
	for line := range strings.Lines(m.readText(name)) {
		if fields := strings.Fields(line); len(fields) >= 2 {
			if n, ok := parse(fields[1]); ok {
				table[fields[0]] = n
			}
		}
	}
	return table
}

func parse(text string) (float64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return float64(n), err == nil
}
