// Package process runs helper programs for tests: a child that cannot outlive its
// parent, and ports that stay reserved while nothing listens on them.
package process
