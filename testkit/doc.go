// Package testkit is for testing services that use Coord, and implementations of its
// contracts: in-memory doubles with a controllable clock and faults to inject, a module
// that stands in for coordfx.Module, conformance suites, and launchers of real and
// embedded servers with a fault proxy between.
package testkit
