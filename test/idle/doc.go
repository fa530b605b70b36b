// Package idle measures what many sessions without work cost the coordinator: memory, the processor time of their heartbeats, and
// the time until all are back after a restart (W8, W9). The workers are in a process of their own, the command crowd, and neither
// it nor the coordinator has the race detector, which would be measured instead.
package idle
