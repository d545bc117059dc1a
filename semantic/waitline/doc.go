// Package waitline is for implementations of the rate limiter's contract: it lets callers
// who wait for the same budget stand in line, first come, first served, and only the head
// of the line asks for more.
package waitline
