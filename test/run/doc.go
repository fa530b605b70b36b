// Package run kills lessor run in the middle of a slow run, again and again, and repeats the
// command. No line whose outcome was committed is run again, and in the end the output is that of a
// run without kills.
//
// There are three sources to check this: each command appends its line to a log when it starts;
// lessor run prints only what is committed; and between a kill and the next process, lessor serve
// shows the store of the run.
package run
