package main

import (
	"io"
	"strings"
	"testing"
)

// TestAMatrixWithoutItsRedisSaysSo: what was opened before is closed, and the cause is told.
func TestAMatrixWithoutItsRedisSaysSo(t *testing.T) {
	_, _, err := openMatrix(t.Context(), saleConfig{store: "memory", redis: "redis://127.0.0.1:1"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v, want the refused connection", err)
	}
}
