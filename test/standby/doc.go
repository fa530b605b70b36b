// Package standby kills coordinators whose answers wait for a standby, takes their disks away, and goes on with the standby: everything that was acknowledged
// is there. It also kills standbys under load. The tests have the build tag faults.
package standby
