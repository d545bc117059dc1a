package observability_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/internal/contract"
)

func TestEverySignalHasExactlyOneOfAlarmAndWaiverAndAllItsWords(t *testing.T) {
	for _, p := range contract.Entries(observability.Catalog()) {
		t.Errorf("%s: %s", p.Key, p.Text)
	}
}

func TestEveryMethodEmitsWhatTheCatalogSays(t *testing.T) {
	for _, p := range contract.Methods(observability.Catalog()) {
		t.Errorf("%s: %s", p.Key, p.Text)
	}
}

// TestTheBindingAlarms: these keys and thresholds are the users' alarms.
func TestTheBindingAlarms(t *testing.T) {
	want := map[observability.Key]string{
		"redis.adapter.disconnected": "≥ 1 in 5 min", "redis.adapter.reconnected": "",
		"redis.subscription.dropped": "≥ 3 sustained in 5 min", "redis.subscription.resubscribed": "",
		"redis.lock.unavailable": "≥ 5 in 5 min", "redis.resource_lease.remove_failed": "≥ 1 in 5 min",
		"redis.resource_lease.reclaim_detected": "", "redis.cron_fanout.enqueue_failed": "≥ 1 in 5 min",
	}
	for _, s := range observability.Catalog() {
		alarm, binding := want[s.Key]
		if !binding {
			continue
		}
		delete(want, s.Key)
		have := ""
		if s.Alarm != nil {
			have = s.Alarm.String()
		}
		if have != alarm {
			t.Errorf("%s: alarm %q, want %q", s.Key, have, alarm)
		}
	}
	for key := range want {
		t.Errorf("%s is missing from the catalog", key)
	}
}

// Each rule of the contract finds the fault that it is there for.
func TestTheContractBites(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*observability.Signal)
		want   string
	}{
		"a key of two words":     {func(s *observability.Signal) { s.Key = "redis.lost" }, "three words"},
		"no alarm and no waiver": {func(s *observability.Signal) { s.Alarm = nil }, "exactly one"},
		"an alarm and a waiver":  {func(s *observability.Signal) { s.Waiver = "no" }, "exactly one"},
		"no action":              {func(s *observability.Signal) { s.Action = "" }, "what to do"},
		"an alarm on an info":    {func(s *observability.Signal) { s.Level = zapcore.InfoLevel }, "at least a warning"},
		"half a minute":          {func(s *observability.Signal) { s.Alarm.Period = 30 * time.Second }, "whole minutes"},
		"6 minutes of 5": {func(s *observability.Signal) {
			*s.Alarm = observability.Alarm{Threshold: 6, Period: 5 * time.Minute, Sustained: true}
		}, "do not fit"},
		"another unit": {func(s *observability.Signal) {
			s.Fields[0] = observability.Field{Name: "key_ms", Kind: observability.Text}
		}, "_ms"},
		"another level":        {func(s *observability.Signal) { s.Level = zapcore.ErrorLevel }, "written with level"},
		"another message":      {func(s *observability.Signal) { s.Message = "gone" }, "written with level"},
		"another kind":         {func(s *observability.Signal) { s.Fields[0].Kind = observability.Number }, "written with the fields"},
		"one field more":       {func(s *observability.Signal) { s.Fields = append(s.Fields, s.Fields[0]) }, "written with the fields"},
		"another key":          {func(s *observability.Signal) { s.Key = "redis.lock.gone" }, "no method emits it"},
		"the same entry twice": {func(s *observability.Signal) { s.Key = observability.LockUnavailable }, "twice"},
	} {
		catalog := observability.Catalog()
		i := slices.IndexFunc(catalog, func(s observability.Signal) bool { return s.Key == observability.LockLost })
		c.change(&catalog[i])
		found := append(contract.Entries(catalog), contract.Methods(catalog)...)
		if !slices.ContainsFunc(found, func(p contract.Problem) bool { return strings.Contains(p.Text, c.want) }) {
			t.Errorf("%s: found %v, want %q", name, found, c.want)
		}
	}
}

func TestSignalsWithoutALoggerSayNothing(t *testing.T) {
	observability.New(nil).LockLost("k")
	(*observability.Signals)(nil).LockLost("k")
}
