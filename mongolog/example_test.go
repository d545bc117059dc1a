package mongolog_test

import (
	"fmt"

	"github.com/wrkbelt/coord/mongolog"
)

// A log is made without I/O: what is wrong with its settings is said at once, and
// secrets are left out.
func ExampleNew() {
	_, err := mongolog.New(mongolog.Config{URI: "mongodb://app:s3cret@db.internal:27017"}, nil)
	fmt.Println(err)
	log, err := mongolog.New(mongolog.Config{URI: "mongodb://app:s3cret@db.internal:27017/bookings"}, nil)
	fmt.Println(log != nil, err)
	// Output:
	// mongo Database: not set, and none in the URI's path: want a database name
	// true <nil>
}
