// Package run kills lessor run in the middle of a slow run, again and again, and gives the same command again: no line whose
// outcome was committed is run again, and in the end the output is that of an undisturbed run.
//
// There are three witnesses: each command appends its line to a log when it starts; what lessor run prints is only what was
// committed; and between a kill and the next process, lessor serve shows the store of the run.
package run
