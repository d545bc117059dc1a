// Package waived has one exception of each form.
package waived

import (
	"github.com/redis/go-redis/v9" //coord:allow-raw the flush tool is older than the contracts
)

// Flush is covered as a whole.
//
//coord:allow-raw the flush tool works on keys of a foreign program
func Flush(client *redis.Client) error {
	all := client
	return all.Close()
}

type tool struct {
	//coord:allow-raw kept for the life of the flush tool
	client *redis.Client
}
