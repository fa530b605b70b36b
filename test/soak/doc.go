// Package soak keeps a coordinator under a steady load and looks for what grows.
package soak
