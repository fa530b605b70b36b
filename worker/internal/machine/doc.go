// Package machine measures how full the machine is on which the process runs, within the limits of
// the process. For memory and CPU, the value is the highest of the machine itself and the cgroups
// (version 2) that the process is in. For the disk, only the space that an ordinary user may write
// counts. A gauge that the operating system does not provide is left out: outside Linux, only the
// disk can be measured.
package machine
