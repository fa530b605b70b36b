// Package audit keeps the audit within bounds (X4). What was done goes into the store with the change itself (package engine). What was
// refused changes nothing, and may be asked for without end: here it is summed up. What is older than its retention is removed here.
//
// The first refusal of a kind is written at once; those that follow within the window are counted, and one entry says how many they were. A tenant
// has a bounded number of kinds in a window; what is beyond shares one entry for each outcome. So a flood takes a bounded part of the disk,
// and shows all the same.
package audit
