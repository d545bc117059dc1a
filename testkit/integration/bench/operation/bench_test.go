package main

import "testing"

// BenchmarkOperationVsSetNX reports one run's ratio as a metric; the program prints the
// median of several.
func BenchmarkOperationVsSetNX(b *testing.B) {
	bench, err := openBench(b.Context())
	if err != nil {
		b.Skip(err)
	}
	defer bench.close()
	var last result
	for b.Loop() {
		if last, err = bench.once(b.Context(), 5_000); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(last.ratio(), "ratio")
	b.ReportMetric(last.begin.perSecond(), "begin/s")
	b.ReportMetric(last.complete.perSecond(), "complete/s")
	b.ReportMetric(last.setnx.perSecond(), "setnx/s")
}
