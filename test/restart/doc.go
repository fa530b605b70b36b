// Package restart kills and restarts coordinator and workers, in turn and under load: each task is
// committed exactly once, no attempt is repeated whose worker lives, and handlers notice a restart
// of the coordinator only as a short interruption (A9, W8, W10).
package restart
