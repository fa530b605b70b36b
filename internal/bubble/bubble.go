// Package bubble lets package workertest run a coordinator on the fake time of testing/synctest,
// without an exported setting that users would see.
package bubble

// FakeTime changes the *coordinator.Config of a coordinator that runs in a bubble of
// testing/synctest. There, hours of fake time then take much less real time; elsewhere, leases
// would lose the time in which the coordinator stands still. Package coordinator, which this
// package cannot import, sets it.
var FakeTime func(config any)
