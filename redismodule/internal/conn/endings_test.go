package conn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestEndings(t *testing.T) {
	for name, c := range map[string]struct{ first, then, ends time.Duration }{
		"the same":                  {time.Second, time.Second, time.Second},
		"shares an earlier one":     {time.Second, time.Second + endingGrain, time.Second},
		"never ends late":           {time.Second, time.Second - 1, time.Second - 1},
		"too far from the first":    {time.Second, time.Second + endingGrain + 1, time.Second + endingGrain + 1},
		"the first has ended":       {0, endingGrain, endingGrain},
		"the first is about to end": {endingNear - 1, endingNear + 1, endingNear + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var e endings
				type key struct{}
				ctx := context.WithValue(context.WithoutCancel(t.Context()), key{}, "value")
				began := time.Now()
				e.of(ctx, began.Add(c.first))
				ended := e.of(ctx, began.Add(c.then))
				if ended.Err() != nil || ended.Value(key{}) != "value" {
					t.Errorf("%v, %v", ended.Err(), ended.Value(key{}))
				}
				<-ended.Done()
				if took := time.Since(began); took != c.ends {
					t.Errorf("ended after %v, want %v", took, c.ends)
				}
				if err := ended.Err(); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		})
	}
}
