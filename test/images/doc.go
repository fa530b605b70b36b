// Package images records what a store writes to its file, builds the files that a crash or a lying
// disk could leave of that, and opens each of them. After a crash it must have all that was
// acknowledged; after a lie of the disk it must be refused, found damaged, or be right. The tests
// have the build tag faults. They run without the race detector, with which thousands of images
// would take minutes.
package images
