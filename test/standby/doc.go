// Package standby kills coordinators whose answers wait for a standby, takes their disks away, and
// goes on with the standby: everything that was acknowledged is there. It also kills standbys under
// load, and cuts the line between the two, with and without a word. The tests have the build tag
// faults.
package standby
