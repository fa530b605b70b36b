// Package refusals tests refusals to start that need a special set-up: a store of a newer version,
// and a user without permissions. Other refusals are tested by the scripts in cmd/lessor/testdata.
package refusals
