package waiverwithoutreason

import _ "github.com/redis/go-redis/v9" //coord:allow-raw // want "import" "waiver"
