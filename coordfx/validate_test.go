package coordfx_test

import (
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/redismodule"
)

func TestValidateNamesEverySettingThatIsWrong(t *testing.T) {
	err := coordfx.Config{
		Redis: redismodule.Config{PoolSize: -1, Addresses: []string{"localhost:abc"}},
		Cron:  coordfx.CronConfig{MaxSkew: -time.Second, Retention: -1, History: -1},
	}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"COORD_REDIS_POOL_SIZE", "COORD_REDIS_ADDRESSES", "COORD_CRON_MAX_SKEW", "COORD_CRON_RETENTION", "COORD_CRON_HISTORY"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in: %v", want, err)
		}
	}
}

// A URL in the wrong variable is the likeliest mistake.
func TestASecretInTheWrongPlaceIsNotRepeated(t *testing.T) {
	const secret = "redis://:topsecret@localhost:7502"
	for name, value := range map[string]string{
		"COORD_REDIS_ADDRESSES": secret, "COORD_REDIS_DB": secret, "COORD_REDIS_URL": "topsecret",
		"COORD_REDIS_MODE": secret, "COORD_INSTANCE_ID": secret + " x", "COORD_NAMESPACE": secret, "COORD_REDIS_POOL_SIZE": secret,
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			c, err := coordfx.ConfigFromEnv()
			if err == nil {
				err = c.Validate()
			}
			if err == nil || strings.Contains(err.Error(), "topsecret") || !strings.Contains(err.Error(), name) {
				t.Errorf("%v, want an error that names the variable and not the secret", err)
			}
		})
	}
}
