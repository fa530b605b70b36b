// Package machine measures how full the machine is that the process runs on, as the process is limited by it: of memory and
// CPU the fullest counts of the machine itself and the cgroups (version 2) that the process is in, of the disk what
// an ordinary user may write. What the operating system does not tell is left out: beyond Linux that is all but
// the disk.
package machine
