// Package refusals holds the refusals to start that take more than typing commands to bring about: a store of a newer
// version, and a user without permission. The others are scripts of cmd/lessor.
package refusals
