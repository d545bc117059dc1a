// Package redislock stands in for the library of that name.
package redislock

type Client struct{}
