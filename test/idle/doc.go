// Package idle measures what many sessions without work cost the coordinator: memory, the processor
// time of their heartbeats, and the time until all are back after a restart (W8, W9). The workers
// run in another process, the command crowd. Neither that nor the coordinator has the race
// detector, because its cost would be measured instead.
package idle
