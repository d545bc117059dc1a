//go:build !unix

package conn

// silent takes every socket as open: here nothing tells without waiting.
func silent(uintptr) bool { return true }
