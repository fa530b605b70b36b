//go:build !race

package lease_test

const histories = 150
