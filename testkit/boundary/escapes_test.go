package boundary_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wrkbelt/coord/testkit/boundary"
	"github.com/wrkbelt/coord/testkit/boundary/internal/driver"
)

// escapes are the ways around the boundary that testdata/app/escapes tries, each in a
// package of its own, and whether a rule that looks at imports alone would see it there.
var escapes = map[string]struct{ importRule bool }{
	"alias":                        {true},
	"blank_import":                 {true},
	"build_tag":                    {true},
	"channel_and_map":              {true},
	"client_built_in_consumer":     {true},
	"client_exporting_module":      {true},
	"closure_capture":              {false},
	"constraint":                   {true},
	"constructor_parameter":        {true},
	"constructor_result":           {true},
	"declared_type":                {true},
	"dot_import":                   {true},
	"embedded_interface":           {true},
	"embedding":                    {true},
	"embedding_of_a_holder":        {false},
	"external_test":                {true},
	"foreign_fx_in_struct":         {false},
	"function_value":               {false},
	"fx_as_client":                 {true},
	"fx_as_hides_the_type":         {false},
	"fx_decorate":                  {true},
	"fx_in_field":                  {true},
	"fx_invoke_literal":            {true},
	"fx_out_field":                 {true},
	"fx_populate":                  {false},
	"fx_provide_constructor":       {false},
	"fx_provide_literal":           {true},
	"fx_replace":                   {false},
	"fx_supply":                    {false},
	"generated_file":               {true},
	"generic_box":                  {true},
	"getter_of_an_allowed_package": {false},
	"inferred_local":               {false},
	"inferred_type_argument":       {false},
	"interface_method":             {true},
	"linkname":                     {false},
	"listed_holders":               {true},
	"method_result":                {true},
	"named_function_type":          {true},
	"named_kinds":                  {false},
	"old_client_path":              {true},
	"optional_field":               {true},
	"other_clients":                {true},
	"provider_parameter":           {true},
	"returned_as_any":              {true},
	"stale_waiver":                 {false},
	"struct_field":                 {true},
	"structural_interface":         {true},
	"test_file":                    {true},
	"type_argument":                {true},
	"type_assertion":               {true},
	"universal_client_parameter":   {true},
	"unlisted_holder":              {false},
	"variadic_parameter":           {true},
	"waiver_without_reason":        {true},
}

// app is the test data's module, with stubs of the libraries in its vendor directory.
const app = "testdata/app"

// offline is the environment in which the go command looks at it.
func offline() []string {
	return append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=vendor -buildvcs=false")
}

func analyze(t *testing.T, tags string, patterns ...string) *driver.Report {
	t.Helper()
	report, err := driver.Run(boundary.NewAnalyzer(boundary.Config{}), driver.Request{Dir: app, Env: offline(), Patterns: patterns, Tags: tags})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

var wantForm = regexp.MustCompile(`// want(-above)?((?: "[a-z-]+")+)$`)

// wanted reads the expectations of the files under a directory: file:line category.
func wanted(t *testing.T, dir string, tags bool) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(filepath.Join(app, dir), func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(p) != ".go" {
			return err
		}
		source, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if strings.HasPrefix(string(source), "//go:build admin") && !tags {
			return nil
		}
		for i, line := range strings.Split(string(source), "\n") {
			if m := wantForm.FindStringSubmatch(line); m != nil {
				number := i + 1
				if m[1] != "" {
					number--
				}
				for _, c := range strings.Fields(m[2]) {
					all = append(all, fmt.Sprintf("%s:%d %s", p, number, strings.Trim(c, `"`)))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// found are findings in the form of the expectations.
func found(t *testing.T, report *driver.Report) []string {
	t.Helper()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range report.Findings {
		file, err := filepath.Rel(root, f.Position.Filename)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s:%d %s", file, f.Position.Line, f.Category))
	}
	slices.Sort(all)
	return all
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("not caught: %s", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("reported without reason: %s", g)
		}
	}
}

func TestEscapesAreCaught(t *testing.T) {
	report := analyze(t, "admin")
	compare(t, found(t, report), append(wanted(t, "escapes", true), wanted(t, "shared", true)...))

	dirs, err := os.ReadDir(app + "/escapes")
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) < 25 || len(dirs) != len(escapes) {
		t.Errorf("%d escapes are there, %d in the list, at least 25 are promised", len(dirs), len(escapes))
	}
	for _, d := range dirs {
		e, ok := escapes[d.Name()]
		if !ok {
			t.Errorf("%s is not in the list of escapes", d.Name())
		}
		caught, imported := false, false
		for _, f := range report.Findings {
			if filepath.Base(filepath.Dir(f.Position.Filename)) == d.Name() {
				caught = true
				imported = imported || f.Category == "import"
			}
		}
		if !caught {
			t.Errorf("%s is not caught", d.Name())
		}
		if imported != e.importRule {
			t.Errorf("%s: seen by a rule of imports = %v, the list says %v", d.Name(), imported, e.importRule)
		}
	}
}

func TestABuildTagHidesItsFilesFromARunWithoutIt(t *testing.T) {
	report := analyze(t, "", "./escapes/build_tag")
	compare(t, found(t, report), wanted(t, "escapes/build_tag", false))
	if len(report.Findings) != 0 {
		t.Error("the documentation says that a run sees the files of its own tags only")
	}
}

func TestInnocentCodeIsNotReported(t *testing.T) {
	report := analyze(t, "admin", "./clean/...")
	for _, f := range report.Findings {
		t.Error(f)
	}
	if report.Packages < 6 {
		t.Errorf("only %d packages were looked at", report.Packages)
	}
	var reasons []string
	for _, w := range report.Waivers {
		reasons = append(reasons, w.Reason)
	}
	want := []string{
		"this file is the flush tool's",
		"the flush tool is older than the contracts",
		"the flush tool works on keys of a foreign program",
		"kept for the life of the flush tool",
	}
	if !slices.Equal(reasons, want) {
		t.Errorf("exceptions = %q, want %q", reasons, want)
	}
}
