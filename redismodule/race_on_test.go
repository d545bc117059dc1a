//go:build race

package redismodule

// raceEnabled relaxes time bounds: the race detector is an order of magnitude slower.
const raceEnabled = true
