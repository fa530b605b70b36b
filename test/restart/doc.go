// Package restart kills and restarts coordinator and workers, in turn and under load: each task is committed exactly once, no work
// is run twice whose worker lives, and to the handlers a restart of the coordinator is a blink (A9, W8, W10).
package restart
