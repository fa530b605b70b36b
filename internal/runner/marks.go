package runner

// marks holds one bit for each line, numbered from 1.
type marks struct {
	bits  []uint64
	lines int64
	count int64
}

func newMarks(lines int64) *marks {
	return &marks{bits: make([]uint64, lines/64+1), lines: lines}
}

// mark marks a line and reports whether it was not marked before. Numbers that are not lines of the
// run cannot be marked.
func (m *marks) mark(line int64) bool {
	if line < 1 || line > m.lines {
		return false
	}
	bit := uint64(1) << (line % 64)
	if m.bits[line/64]&bit != 0 {
		return false
	}
	m.bits[line/64] |= bit
	m.count++
	return true
}

// left is the number of lines that are not marked.
func (m *marks) left() int64 { return m.lines - m.count }

// has reports whether a line is marked.
func (m *marks) has(line int64) bool {
	return line >= 1 && line <= m.lines && m.bits[line/64]&(uint64(1)<<(line%64)) != 0
}

// lacks reports whether a line is not marked. Numbers that are not lines of the run do not count.
func (m *marks) lacks(line int64) bool { return line >= 1 && line <= m.lines && !m.has(line) }
