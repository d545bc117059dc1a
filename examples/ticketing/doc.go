// Ticketing sells seats. It shows the sequence that the operation coordinator is made
// for, and proves it by killing the seller at every point of it.
//
//	go run ./examples/ticketing -crash all               # every point × 1 and 2 restarts
//	go run ./examples/ticketing -crash after-charge      # one point
//	go run ./examples/ticketing -crash all -store memory # another durable store
//	go run ./examples/ticketing -naive -crash all        # a mistake, and what it costs
//	go run ./examples/ticketing -list                    # the points
//
// A sale is a child process that really dies: at the point it kills itself with
// SIGKILL. What outlives it is what would in production: Redis, the database, and the
// payment provider, a process of its own. However often the sale dies, there must be one
// charge, one seat, one outbox event, and the final state must be reached. Two more rows
// let two buyers race for one seat and four replicas race for one request.
//
// The durable store is an interface with three adapters: an SQLite file (the default),
// MongoDB (-store mongodb -mongodb URI), and memory, which the parent process serves to
// its children as a database server would.
//
// Redis is redis-server when it is on PATH, else one embedded in the parent, else what
// -redis names. The program exits with 0 only if every row holds.
package main
