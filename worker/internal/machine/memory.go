package machine

import "path"

// memoryPcts returns how full the memory of the machine and of each of the groups is, in percent.
func (m *Meter) memoryPcts(groups []string) (pcts []float64) {
	if info := m.readTable("proc/meminfo"); info["MemTotal:"] > 0 {
		if available, found := info["MemAvailable:"]; found {
			pcts = append(pcts, percent(info["MemTotal:"]-available, info["MemTotal:"]))
		}
	}
	for _, group := range groups {
		limit, limited := m.readNumber(path.Join(group, "memory.max"))
		used, found := m.readNumber(path.Join(group, "memory.current"))
		if limited && found && limit > 0 {
			// Inactive file cache does not count: the kernel frees it first when memory gets short.
			cache := m.readTable(path.Join(group, "memory.stat"))["inactive_file"]
			pcts = append(pcts, percent(max(used-cache, 0), limit))
		}
	}
	return pcts
}

func percent(part, whole float64) float64 { return 100 * part / whole }
