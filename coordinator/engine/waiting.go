package engine

// waitingLines are the lines of a queue in which tasks wait, in the order of their last grants, or
// where there was none, in the order in which they came (or moved to another pool). So the first
// ones are those in which a task is most likely to have waited the longest: a line that nobody
// serves, or the oldest of a million. It is a list through the lines themselves, because lines come
// and go with their tasks.
type waitingLines struct {
	first, last *line
	n           int
}

// Len returns how many lines there are.
func (ws *waitingLines) Len() int { return ws.n }

// add adds a line at the end.
func (ws *waitingLines) add(l *line) {
	l.before, l.behind = ws.last, nil
	if ws.last == nil {
		ws.first = l
	} else {
		ws.last.behind = l
	}
	ws.last = l
	ws.n++
}

// remove removes a line.
func (ws *waitingLines) remove(l *line) {
	if l.before == nil {
		ws.first = l.behind
	} else {
		l.before.behind = l.behind
	}
	if l.behind == nil {
		ws.last = l.before
	} else {
		l.behind.before = l.before
	}
	l.before, l.behind = nil, nil
	ws.n--
}

// granted moves a line to the end, since a task of it was granted.
func (ws *waitingLines) granted(l *line) {
	if l != ws.last {
		ws.remove(l)
		ws.add(l)
	}
}

// nameLines adds to what is shown of queues the lines in which their tasks wait, at most as many
// together as most says. The queues take turns, so that one with many lines takes none away from
// the others.
func nameLines(most int, queues []*queue, shown []QueueInfo) {
	type place struct {
		shown *QueueInfo
		next  *line // that is named next
	}
	var places []place
	for i, q := range queues {
		if q.waiting.Len() > 0 {
			places = append(places, place{&shown[i], q.waiting.first})
			shown[i].MoreLines = true
		}
	}
	for named := 0; len(places) > 0; {
		rest := places[:0]
		for _, p := range places {
			if named == most {
				return
			}
			named++
			p.shown.Lines = append(p.shown.Lines, p.next.kind)
			if p.next = p.next.behind; p.next != nil {
				rest = append(rest, p)
			} else {
				p.shown.MoreLines = false
			}
		}
		places = rest
	}
}
