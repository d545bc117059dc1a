package main

import (
	"context"
	"fmt"
)

func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// first holder has the lock and is paused
	// its lock expired; second holder has a greater fence: true
	// second holder writes paid: true
	// first holder wakes up and writes cancelled: false
	// order is paid
}
