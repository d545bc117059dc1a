// Package histories checks what concurrent clients of a lock and a lease saw, under
// random faults, against a model of each: every history must have an order in which the
// primitive could have given just these answers. The search is porcupine's.
//
// A call whose outcome is unknown may have been applied at any time from its begin on,
// or never. A crash of the server without persistence frees everything; a failover may
// bring back what was true before the last writes.
//
// COORD_TEST_HISTORY sets how long each history is recorded (default 2s), and
// COORD_TEST_SEED replays the dice of an earlier run.
package histories
