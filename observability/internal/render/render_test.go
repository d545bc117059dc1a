package render_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/internal/render"
)

func TestTheGeneratedFilesAreThoseOfTheCatalog(t *testing.T) {
	files, err := render.Files(observability.Catalog())
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 4 {
		t.Errorf("%d files, want 4", len(files))
	}
	for name, want := range files {
		have, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(name)))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(have, want) {
			t.Errorf("%s is not what the catalog says: run make generate", name)
		}
	}
}
