package redismodule

import (
	"strings"
	"testing"
)

// TestAURLSaysNothingWithoutEffect: an option of its query is taken or refused by name.
func TestAURLSaysNothingWithoutEffect(t *testing.T) {
	c, err := Config{URL: "redis://localhost:6379?db=3"}.Settled()
	if err != nil || c.DB != 3 {
		t.Errorf("db: %d, %v, want 3", c.DB, err)
	}
	for _, option := range []string{"pool_size=5", "protocol=2", "read_timeout=1s"} {
		name, _, _ := strings.Cut(option, "=")
		_, err := Config{URL: "redis://:secret@localhost:6379/0?" + option}.Settled()
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want an error that names it and no secret", option, err)
		}
	}
}

// TestTLSOfAURLHoldsForEveryHost: several hosts verify each its own name, and an
// unverified URL stays unverified.
func TestTLSOfAURLHoldsForEveryHost(t *testing.T) {
	for url, skip := range map[string]bool{
		"rediss://a:1,b:2":                  false,
		"rediss://a:1,b:2?skip_verify=true": true,
	} {
		c, err := Config{URL: url, Mode: Cluster}.Settled()
		if err != nil || c.TLS == nil || c.TLS.ServerName != "" || c.TLS.InsecureSkipVerify != skip {
			t.Errorf("%s: %+v, %v, want no fixed name and InsecureSkipVerify %v", url, c.TLS, err, skip)
		}
	}
}
