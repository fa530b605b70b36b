// Package soak puts a coordinator under a steady load, and checks that nothing in it grows.
package soak
