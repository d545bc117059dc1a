// Package cache stands in for the library of that name.
package cache

type Cache struct{}
