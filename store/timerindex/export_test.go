package timerindex

// RemovedAtOnce is removedAtOnce, for tests.
const RemovedAtOnce = removedAtOnce
