// The command generate writes the generated files. It runs in the directory
// observability, by go generate.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/internal/render"
)

func main() {
	files, err := render.Files(observability.Catalog())
	if err != nil {
		log.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join("..", filepath.FromSlash(name)), content, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
