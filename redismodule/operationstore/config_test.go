package operationstore

import (
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic/operation"
)

func validRedis() redismodule.Config {
	return redismodule.Config{Addresses: []string{"127.0.0.1:6379"}}
}

func TestTheZeroConfigHasTheDocumentedDefaults(t *testing.T) {
	c, err := Config{Redis: validRedis()}.Settled()
	if err != nil {
		t.Fatal(err)
	}
	if c.Lease != 30*time.Second || c.Retention != 7*24*time.Hour || c.Namespace != "coord" || c.AuthorityID != "redis" ||
		c.Redis.PoolSize != 64 || c.Redis.CommandTimeout != 2*time.Second {
		t.Fatalf("settled to %+v", c)
	}
	again, err := c.Settled()
	if err != nil || again.Lease != c.Lease || again.Redis.PoolSize != c.Redis.PoolSize || again.Namespace != c.Namespace {
		t.Fatalf("settling twice: %+v, %v", again, err)
	}
}

func TestSettingsOutOfBoundsAreRefusedByName(t *testing.T) {
	for _, c := range []struct {
		setting string // "" when it is allowed
		change  func(*Config)
	}{
		{"", func(c *Config) { c.Lease = time.Millisecond }},
		{"", func(c *Config) { c.Lease = time.Hour }},
		{"Lease", func(c *Config) { c.Lease = time.Hour + 1 }},
		{"Lease", func(c *Config) { c.Lease = time.Microsecond }},
		{"Lease", func(c *Config) { c.Lease = -1 }},
		{"", func(c *Config) { c.Retention = operation.MaxRetention }},
		{"Retention", func(c *Config) { c.Retention = operation.MaxRetention + 1 }},
		{"", func(c *Config) { c.Lease, c.Retention = time.Minute, time.Minute }},
		{"Retention", func(c *Config) { c.Lease, c.Retention = time.Minute, time.Minute-1 }},
		{"", func(c *Config) { c.MaxActive = 10_000 }},
		{"MaxActive", func(c *Config) { c.MaxActive = 10_001 }},
		{"MaxActive", func(c *Config) { c.MaxActive = -1 }},
		{"MaxQueued", func(c *Config) { c.MaxQueued = 1_000_001 }},
		{"MaxQueuedBytes", func(c *Config) { c.MaxQueuedBytes = 1023 }},
		{"QueueDeadline", func(c *Config) { c.QueueDeadline = time.Minute + 1 }},
		{"CommandDeadline", func(c *Config) { c.CommandDeadline = time.Microsecond }},
		{"", func(c *Config) { c.QueueDeadline = 2 * time.Second }},
		{"QueueDeadline", func(c *Config) { c.QueueDeadline = 2*time.Second + 1 }},
		{"", func(c *Config) { c.QueueDeadline, c.CommandDeadline = time.Minute, time.Minute }},
		{"QueueDeadline", func(c *Config) { c.QueueDeadline, c.CommandDeadline = 2, time.Minute }},
		{"MeterProvider", func(c *Config) { c.MeterProvider = (*sdk.MeterProvider)(nil) }},
		{"", func(c *Config) { c.Namespace = strings.Repeat("n", 96) }},
		{"Namespace", func(c *Config) { c.Namespace = strings.Repeat("n", 97) }},
		{"Namespace", func(c *Config) { c.Namespace = "a{b}" }},
		{"AuthorityID", func(c *Config) { c.AuthorityID = "a b" }},
		{"redis URL", func(c *Config) { c.Redis.Addresses = nil }},
		{"ClusterValidated", func(c *Config) { c.Redis.Mode = redismodule.Cluster }},
		{"", func(c *Config) { c.Redis.Mode, c.ClusterValidated = redismodule.Cluster, true }},
	} {
		config := Config{Redis: validRedis()}
		c.change(&config)
		_, err := config.Settled()
		if (err == nil) != (c.setting == "") || err != nil && !strings.Contains(err.Error(), c.setting) {
			t.Errorf("%+v: %v, want %q refused", config, err, c.setting)
		}
		if _, opened := Open(config, nil); (opened == nil) != (c.setting == "") {
			t.Errorf("Open: %v", opened)
		}
	}
}

// Where the command deadline is the shorter one, it is the queue's default too.
func TestTheQueueDeadlinesDefaultFitsTheCommandDeadline(t *testing.T) {
	c, err := Config{Redis: validRedis(), CommandDeadline: 100 * time.Millisecond}.Settled()
	if err != nil || c.QueueDeadline != 100*time.Millisecond {
		t.Fatalf("%v, %v", c.QueueDeadline, err)
	}
}

// Each bad setting is named once, with a range that something fits into, whatever other
// settings are bad too.
func TestRangesCanBeMetWhateverElseIsWrong(t *testing.T) {
	durations := []time.Duration{0, -1, time.Microsecond, time.Second, 10 * time.Minute, 1000 * time.Hour}
	for _, lease := range durations {
		for _, retention := range durations {
			for _, queue := range durations {
				for _, command := range durations {
					_, err := Config{Redis: validRedis(), Lease: lease, Retention: retention, QueueDeadline: queue, CommandDeadline: command}.Settled()
					if err == nil {
						continue
					}
					named := map[string]bool{}
					for line := range strings.Lines(err.Error()) {
						line = strings.TrimSpace(line)
						setting, _, _ := strings.Cut(strings.TrimPrefix(line, "operations "), ":")
						_, bounds, _ := strings.Cut(line, ": want ")
						spans := regexp.MustCompile(`[0-9][0-9a-zµ.]*[a-z]`).FindAllString(bounds, 2)
						if len(spans) != 2 || named[setting] || !strings.HasPrefix(line, "operations ") {
							t.Fatalf("lease %v, retention %v, queue %v, command %v: %v", lease, retention, queue, command, err)
						}
						named[setting] = true
						least, err1 := time.ParseDuration(spans[0])
						most, err2 := time.ParseDuration(spans[1])
						if err1 != nil || err2 != nil || least > most || least <= 0 {
							t.Fatalf("nothing is in the range of %q", line)
						}
					}
				}
			}
		}
	}
}

func TestMessagesNeverHoldAPassword(t *testing.T) {
	c := Config{Redis: redismodule.Config{URL: "redis://user:hunter2@[bad"}, Lease: -1}
	if _, err := c.Settled(); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Fatalf("got %v", err)
	}
}
