package machine

import "path"

// memory returns how full the memory of the machine and of each of the groups is, in percent.
func (m *Meter) memory(groups []string) (pcts []float64) {
	if info := m.table("proc/meminfo"); info["MemTotal:"] > 0 {
		if available, told := info["MemAvailable:"]; told {
			pcts = append(pcts, percent(info["MemTotal:"]-available, info["MemTotal:"]))
		}
	}
	for _, group := range groups {
		limit, limited := m.number(path.Join(group, "memory.max"))
		used, told := m.number(path.Join(group, "memory.current"))
		if limited && told && limit > 0 {
			// Inactive file cache does not count: the kernel frees it first when memory gets short.
			cache := m.table(path.Join(group, "memory.stat"))["inactive_file"]
			pcts = append(pcts, percent(max(used-cache, 0), limit))
		}
	}
	return pcts
}

func percent(part, whole float64) float64 { return 100 * part / whole }
