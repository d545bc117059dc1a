package testkit_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/testkit"
)

func TestRecordSignalsAppendsEveryLineWhereADirectoryIsNamed(t *testing.T) {
	core, seen := observer.New(zapcore.ErrorLevel)
	t.Setenv(testkit.SignalsDir, "")
	if testkit.RecordSignals(core) != core {
		t.Error("without a directory: another core, want the same")
	}

	dir := t.TempDir()
	t.Setenv(testkit.SignalsDir, dir)
	for range 2 { // two loggers of one process
		log := zap.New(testkit.RecordSignals(core)).With(zap.String("replica", "1"))
		log.Warn("w", zap.String("event", "x"))
		log.Error("e", zap.String("event", "y"))
	}
	if seen.Len() != 2 {
		t.Errorf("%d lines at the core for errors, want 2", seen.Len())
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v, want one", files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []string
	for d := json.NewDecoder(f); d.More(); {
		var line struct{ Level, Event, Replica string }
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line.Level+" "+line.Event+" "+line.Replica)
	}
	if len(lines) != 4 || lines[0] != "warn x 1" || lines[3] != "error y 1" {
		t.Errorf("recorded %q, want both lines of both loggers", lines)
	}
}
