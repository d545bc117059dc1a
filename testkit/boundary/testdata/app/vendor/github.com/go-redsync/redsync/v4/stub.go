// Package redsync stands in for the library of that name.
package redsync

type Redsync struct{}

func (*Redsync) NewMutex(name string) *Mutex { return nil }

type Mutex struct{}
