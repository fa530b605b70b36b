package main

import (
	"os"
	"path/filepath"
)

// stateDir returns the directory for what commands keep for this user; flag is the flag that names
// another place.
func stateDir(flag string) (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fail(exitUsage, "set "+flag, "cannot find the user's state directory: %v", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "lessor"), nil
}
