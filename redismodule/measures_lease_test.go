package redismodule

import (
	"context"
	"testing"
	"time"

	"github.com/wrkbelt/coord/testkit"
)

func TestWhatALeaseMeasures(t *testing.T) {
	const holder = "tenant-7"
	runMeasured(t, []measuredCase{
		{
			name: "every answer",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				_, _ = s.Lease.Claim(t.Context(), measuredKey, holder, time.Minute)
				_, _ = s.Lease.Claim(t.Context(), measuredKey, "another", time.Minute)
				_, _ = s.Lease.TakeOver(t.Context(), measuredKey, "another", time.Minute)
				s.Lease.Release(t.Context(), measuredKey, holder)
				s.Lease.Release(t.Context(), measuredKey, "another")
				s.Lease.Release(t.Context(), measuredKey, "another")
			},
			metrics: bothOf("lease", "claim claimed", "claim held", "take_over taken_over", "release reclaimed", "release removed", "release no_holder"),
			spans: []string{
				"coord.lease claim: claimed Unset", "coord.lease claim: held Unset", "coord.lease take_over: taken_over Unset",
				"coord.lease release: reclaimed Unset", "coord.lease release: removed Unset", "coord.lease release: no_holder Unset",
			},
		},
		{
			name: "redis is down",
			do: func(t *testing.T, s *Services, network *faultNet) {
				defer network.inject(testkit.FaultDown)()
				_, _ = s.Lease.Claim(t.Context(), measuredKey, holder, time.Minute)
				s.Lease.Release(t.Context(), measuredKey, holder)
			},
			metrics: bothOf("lease", "claim unavailable", "release unavailable"),
			spans:   []string{"coord.lease claim: unavailable Error", "coord.lease release: unavailable Error"},
		},
		{
			name: "a hold that another takes over",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				_, _ = s.Lease.Hold(t.Context(), measuredKey, holder, 300*time.Millisecond, func(ctx context.Context) error {
					_, _ = s.Lease.TakeOver(t.Context(), measuredKey, "another", time.Minute)
					<-ctx.Done()
					return nil
				})
			},
			metrics: append(bothOf("lease", "claim claimed", "take_over taken_over", "renew held", "release reclaimed"), "lease.hold 1", "lease.lost 1"),
			spans: []string{
				"coord.lease claim: claimed Unset", "coord.lease take_over: taken_over Unset", "coord.lease renew: held Unset",
				"coord.lease release: reclaimed Unset", "coord.lease hold: lost Error",
			},
		},
		{
			name: "a hold that renews",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				_, _ = s.Lease.Hold(t.Context(), measuredKey, holder, 600*time.Millisecond, func(context.Context) error {
					pause(t.Context(), 300*time.Millisecond)
					return nil
				})
			},
			metrics: append(bothOf("lease", "claim claimed", "renew renewed", "release removed"), "lease.hold 1"),
			spans: []string{
				"coord.lease claim: claimed Unset", "coord.lease renew: renewed Unset",
				"coord.lease release: removed Unset", "coord.lease hold: ran Unset",
			},
		},
	})
}
