// Package asynq stands in for the library of that name.
package asynq

type Client struct{}
