package mongolog

import (
	"strings"
	"testing"
	"time"
)

func TestConfigDefaults(t *testing.T) {
	c, err := Config{URI: "mongodb://user:p%40ss@a:1,b:2/bookings?replicaSet=rs0"}.Settled()
	if err != nil {
		t.Fatal(err)
	}
	if c.Database != "bookings" || c.Collection != "idempotency_log" || c.Timeout != 10*time.Second || c.TryTimeout != 2*time.Second || c.MaxPoolSize != 20 || c.SkipIndexCreation {
		t.Errorf("defaults %+v", c)
	}
	c, err = Config{URI: "mongodb://a/bookings", Database: "other", Collection: "log"}.Settled()
	if err != nil || c.Database != "other" || c.Collection != "log" {
		t.Errorf("%+v, %v, want the settings to win over the URI", c, err)
	}
	// A name server is asked at start, not here.
	if c, err = (Config{URI: "mongodb+srv://user:pass@nowhere.invalid/d"}).Settled(); err != nil || c.Database != "d" {
		t.Errorf("mongodb+srv: %+v, %v", c, err)
	}
}

func TestConfigNamesEverySettingThatIsOutOfRangeAndKeepsSecrets(t *testing.T) {
	const uri = "mongodb://a/d"
	tests := []struct {
		name, setting string
		config        Config
	}{
		{"no URI", "URI", Config{}},
		{"another scheme", "URI", Config{URI: "redis://user:s3cret@a/d"}},
		{"no scheme", "URI", Config{URI: "user:s3cret@a/d"}},
		{"unescaped password", "URI", Config{URI: "mongodb://user:s3cret:x@y@a/d"}},
		{"unknown option value", "URI", Config{URI: "mongodb://user:s3cret@a/d?w=-7&maxPoolSize=many"}},
		{"no host", "URI", Config{URI: "mongodb+srv:///d"}},
		{"no database", "Database", Config{URI: "mongodb://user:s3cret@a"}},
		{"database with a dot", "Database", Config{URI: uri, Database: "a.b"}},
		{"long database", "Database", Config{URI: uri, Database: strings.Repeat("d", 64)}},
		{"collection with a dollar", "Collection", Config{URI: uri, Collection: "a$b"}},
		{"system collection", "Collection", Config{URI: uri, Collection: "system.users"}},
		{"short timeout", "Timeout", Config{URI: uri, Timeout: time.Millisecond}},
		{"negative try timeout", "TryTimeout", Config{URI: uri, TryTimeout: -1}},
		{"long try timeout", "TryTimeout", Config{URI: uri, TryTimeout: time.Hour}},
		{"pool", "MaxPoolSize", Config{URI: uri, MaxPoolSize: 10_001}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, err := New(test.config, nil)
			if err == nil || l != nil || !strings.Contains(err.Error(), "mongo "+test.setting+":") {
				t.Fatalf("%v, want an error that names %s", err, test.setting)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
	_, err := New(Config{URI: uri, Timeout: -1, MaxPoolSize: -1}, nil)
	if err == nil || !strings.Contains(err.Error(), "Timeout") || !strings.Contains(err.Error(), "MaxPoolSize") {
		t.Errorf("%v, want both settings named", err)
	}
}
