// Package images records what a store writes to its file, builds the files that a crash or a lying disk could leave of that, and opens each: with all
// that was acknowledged and nothing in halves, or refused. Its tests have the build tag faults; they run without the race detector, with which thousands of
// images would take minutes.
package images
