// Package conn is the connection layer: the only place that talks to a Redis client
// library. It never resends a command that may have reached the wire, bounds every
// call by its context, and sorts every failure into unavailable or unknown.
//
// Small requests go three ways: straight over a direct connection, through the client
// library, or, where more come at once than there are lanes, many in one pipeline.
//
// The four roles of a connection are four types, so that wiring cannot mix them up:
// [Command], [AppSubscriber], [SocketIOPublisher] and [SocketIOSubscriber]. Being
// internal, none of them can be named outside the Redis module.
package conn
