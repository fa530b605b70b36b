//go:build !race

package lease_test

const quickSteps = 500_000
