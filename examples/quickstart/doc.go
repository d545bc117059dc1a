// Quickstart runs three replicas of a small booking service in one process and shows
// the pattern that Coord exists for: a cron job fires on every replica, one of them wins
// the tick and streams the pending media attachments from a file into an SQS FIFO queue,
// and whichever replica is free handles each record once, behind an idempotency log.
//
//	go run ./examples/quickstart            # embedded Redis, queue and log
//	go run ./examples/quickstart -kill      # one replica dies in the middle of its scan
//	go run ./examples/quickstart -records - < records.jsonl
//
// COORD_REDIS_URL, COORD_MONGODB_URI and COORD_SQS_QUEUE_URL, each alone or all
// together, put real servers in the place of the embedded ones. The program exits with 0
// only if its figures add up and nothing was handled twice.
package main
