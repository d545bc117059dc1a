//coord:allow-raw this file is the flush tool's

package waived

import "example.com/app/shared"

var client = shared.Get()

func use() { _, _ = client.Get(nil, "key").Result() }
