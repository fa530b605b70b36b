package limits

import (
	"math/rand/v2"
	"testing"
	_ "unsafe" // go:linkname gives the test the bounds of other packages, which are no settings
)

// Bounds of package engine.
var (
	//go:linkname maxWaiting github.com/lessor-dev/lessor/coordinator/engine.maxWaiting
	maxWaiting int
	//go:linkname takeAtOnce github.com/lessor-dev/lessor/coordinator/engine.takeAtOnce
	takeAtOnce int
	//go:linkname maxBatchOps github.com/lessor-dev/lessor/coordinator/engine.maxBatchOps
	maxBatchOps int
	//go:linkname maxBatchBytes github.com/lessor-dev/lessor/coordinator/engine.maxBatchBytes
	maxBatchBytes int
	//go:linkname maxBatchChanges github.com/lessor-dev/lessor/coordinator/engine.maxBatchChanges
	maxBatchChanges int
	//go:linkname maxSharedChanges github.com/lessor-dev/lessor/coordinator/engine.maxSharedChanges
	maxSharedChanges int
	//go:linkname dueAtOnce github.com/lessor-dev/lessor/coordinator/engine.dueAtOnce
	dueAtOnce int
	//go:linkname grantsPerTurn github.com/lessor-dev/lessor/coordinator/engine.grantsPerTurn
	grantsPerTurn int
	//go:linkname takersPerBatch github.com/lessor-dev/lessor/coordinator/engine.takersPerBatch
	takersPerBatch int
	//go:linkname triesPerTurn github.com/lessor-dev/lessor/coordinator/engine.triesPerTurn
	triesPerTurn int
	//go:linkname unparksPerTurn github.com/lessor-dev/lessor/coordinator/engine.unparksPerTurn
	unparksPerTurn int
	//go:linkname movesAtOnce github.com/lessor-dev/lessor/coordinator/engine.movesAtOnce
	movesAtOnce int
	//go:linkname lossesPerRound github.com/lessor-dev/lessor/coordinator/engine.lossesPerRound
	lossesPerRound int
	//go:linkname lineHead github.com/lessor-dev/lessor/coordinator/engine.lineHead
	lineHead int
	//go:linkname parkedHead github.com/lessor-dev/lessor/coordinator/engine.parkedHead
	parkedHead int
	//go:linkname timerHead github.com/lessor-dev/lessor/coordinator/engine.timerHead
	timerHead int
	//go:linkname maxIdle github.com/lessor-dev/lessor/coordinator/engine.maxIdle
	maxIdle int
	//go:linkname maxReadAheads github.com/lessor-dev/lessor/coordinator/engine.maxReadAheads
	maxReadAheads int
	//go:linkname maxMoved github.com/lessor-dev/lessor/coordinator/engine.maxMoved
	maxMoved int
	//go:linkname keptFlows github.com/lessor-dev/lessor/coordinator/engine.keptFlows
	keptFlows int
	//go:linkname mostPassed github.com/lessor-dev/lessor/coordinator/engine.mostPassed
	mostPassed int
	//go:linkname sweepStep github.com/lessor-dev/lessor/coordinator/engine.sweepStep
	sweepStep int
	//go:linkname sweepCall github.com/lessor-dev/lessor/coordinator/engine.sweepCall
	sweepCall int
	//go:linkname maxResponse github.com/lessor-dev/lessor/coordinator/engine.maxResponse
	maxResponse int
	//go:linkname maxBacklog github.com/lessor-dev/lessor/coordinator/engine.maxBacklog
	maxBacklog int
	//go:linkname linesInTurn github.com/lessor-dev/lessor/coordinator/engine.linesInTurn
	linesInTurn int
	//go:linkname mostBlockers github.com/lessor-dev/lessor/coordinator/engine.mostBlockers
	mostBlockers int
	//go:linkname newsBytes github.com/lessor-dev/lessor/coordinator/engine.newsBytes
	newsBytes int
	//go:linkname recentChunks github.com/lessor-dev/lessor/coordinator/engine.recentChunks
	recentChunks int
	//go:linkname recentOfAll github.com/lessor-dev/lessor/coordinator/engine.recentOfAll
	recentOfAll int
)

// Bounds of package session.
var (
	//go:linkname maxHeld github.com/lessor-dev/lessor/coordinator/session.maxHeld
	maxHeld int
	//go:linkname maxDispatch github.com/lessor-dev/lessor/coordinator/session.maxDispatch
	maxDispatch int
	//go:linkname maxUnacked github.com/lessor-dev/lessor/coordinator/session.maxUnacked
	maxUnacked int
	//go:linkname maxRetained github.com/lessor-dev/lessor/coordinator/session.maxRetained
	maxRetained int
	//go:linkname maxRetainedBytes github.com/lessor-dev/lessor/coordinator/session.maxRetainedBytes
	maxRetainedBytes int
	//go:linkname maxKeptBytes github.com/lessor-dev/lessor/coordinator/session.maxKeptBytes
	maxKeptBytes int
	//go:linkname maxFeedback github.com/lessor-dev/lessor/coordinator/session.maxFeedback
	maxFeedback int
	//go:linkname maxLost github.com/lessor-dev/lessor/coordinator/session.maxLost
	maxLost int
)

// Bounds of package coordinator and of packages below it.
var (
	//go:linkname submitWindow github.com/lessor-dev/lessor/coordinator/service.submitWindow
	submitWindow int
	//go:linkname mostSubmitBytes github.com/lessor-dev/lessor/coordinator.mostSubmitBytes
	mostSubmitBytes int
	//go:linkname maxScan github.com/lessor-dev/lessor/coordinator/service.maxScan
	maxScan int
	//go:linkname mostHeads github.com/lessor-dev/lessor/coordinator/service.mostHeads
	mostHeads int
	//go:linkname maxPageBytes github.com/lessor-dev/lessor/coordinator/service.maxPageBytes
	maxPageBytes int
	//go:linkname maxAnswers github.com/lessor-dev/lessor/coordinator/sendlimit.maxAnswers
	maxAnswers int
	//go:linkname maxShownTasks github.com/lessor-dev/lessor/coordinator/service.maxShownTasks
	maxShownTasks int
	//go:linkname watchStep github.com/lessor-dev/lessor/coordinator/service.watchStep
	watchStep int
	//go:linkname mostAwaited github.com/lessor-dev/lessor/coordinator/service.mostAwaited
	mostAwaited int
	//go:linkname maxAwaitedBytes github.com/lessor-dev/lessor/coordinator/service.maxAwaitedBytes
	maxAwaitedBytes int
)

// bounds has the range of each bound in the histories. Bytes are in the order of one task with a
// small payload, whose assignment counts as 1.5 KiB.
var bounds = []struct {
	bound     *int
	low, high int
}{
	{&maxWaiting, 8, 60},
	{&takeAtOnce, 1, 4},
	{&maxBatchOps, 2, 16},
	{&maxBatchBytes, 256, 8 << 10},
	{&maxBatchChanges, 2, 24},
	{&maxSharedChanges, 2, 12},
	{&dueAtOnce, 1, 8},
	{&grantsPerTurn, 1, 4},
	{&takersPerBatch, 1, 4},
	{&triesPerTurn, 1, 12},
	{&unparksPerTurn, 1, 8},
	{&movesAtOnce, 0, 4},
	{&lossesPerRound, 1, 4},
	{&lineHead, 2, 8}, // a reading ahead has half of it, and must have one
	{&parkedHead, 2, 8},
	{&timerHead, 2, 8},
	{&maxIdle, 1, 16},
	{&maxReadAheads, 1, 4},
	{&maxMoved, 1, 8},
	{&keptFlows, 1, 4},
	{&mostPassed, 1, 8},
	{&sweepStep, 1, 10},
	{&sweepCall, 5, 40},
	{&maxResponse, 1 << 10, 16 << 10},
	{&maxBacklog, 1 << 10, 32 << 10},
	{&linesInTurn, 1, 8},
	{&mostBlockers, 1, 4},
	{&newsBytes, 1 << 10, 8 << 10}, // an item of news has at least 1 KiB
	{&recentChunks, 1, 4},
	{&recentOfAll, 64, 512},
	{&maxHeld, 512, 16 << 10},
	{&maxDispatch, 1 << 10, 16 << 10},
	{&maxUnacked, 2, 16},
	{&maxRetained, 2, 20},
	{&maxRetainedBytes, 1 << 10, 16 << 10},
	{&maxKeptBytes, 1 << 10, 16 << 10},
	{&maxFeedback, 64, 1 << 10},
	{&maxLost, 1, 4},
	{&submitWindow, 1, 4},
	{&mostSubmitBytes, 1 << 10, 32 << 10},
	{&maxScan, 3, 30},
	{&mostHeads, 1, 8},
	{&maxPageBytes, 512, 8 << 10},
	{&maxAnswers, 1, 4},
	{&maxShownTasks, 1, 10},
	{&watchStep, 1, 12},
	{&mostAwaited, 1, 6},
	{&maxAwaitedBytes, 512, 8 << 10},
}

// lower sets all bounds for one history, each of them at random. A few keep the value that they
// have in production. The function that it returns sets all of them back.
func lower(t *testing.T, rng *rand.Rand) (restore func()) {
	t.Helper()
	before := make([]int, len(bounds))
	for i, b := range bounds {
		if before[i] = *b.bound; before[i] == 0 { // the linker makes a new variable if there is none of that name
			t.Fatalf("bound %d of the table is 0: the variable has another name", i)
		}
		if n := b.low + rng.IntN(b.high-b.low+1); rng.IntN(8) > 0 {
			*b.bound = n
		}
	}
	return func() {
		for i, b := range bounds {
			*b.bound = before[i]
		}
	}
}
