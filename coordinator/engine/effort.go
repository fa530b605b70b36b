package engine

// triesPerTurn is how many tasks match tries in a round, to be granted or unparked, before other
// operations have their turn; how many all calls that do not wait try; and how many lines alarms
// move. This bounds work that adds nothing to the batch: a task that is parked in the batch in
// which it was made is one change, and when a head is refilled the batch may be handed over.
// Looking at many pools counts, too (looksPerTry), and so does passing over tasks for which a taker
// has no room.
var triesPerTurn = maxBatchChanges

// effort counts what the loop has tried since the start, in tasks; see triesPerTurn. It belongs to
// the loop.
type effort struct {
	tried    int
	pollsEnd int // value of tried from which on the calls that do not wait leave the rest to the next round
}

// add counts n tries.
func (f *effort) add(n int) { f.tried += n }

// after returns the end of n more tries.
func (f *effort) after(n int) (end int) { return f.tried + n }

// reached reports whether there were as many tries as after said.
func (f *effort) reached(end int) bool { return f.tried >= end }

// beginRound gives the calls that do not wait their tries of a round.
func (f *effort) beginRound() { f.pollsEnd = f.after(triesPerTurn) }

// pollsDone reports whether the calls that do not wait have used up their tries of the round.
func (f *effort) pollsDone() bool { return f.reached(f.pollsEnd) }
