package verify

import (
	"regexp"
	"strings"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/internal/render"
)

var (
	runbookPart = regexp.MustCompile(`(?m)^## (.+)$`)
	notSlug     = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// slug is the fragment that GitHub makes of a heading.
func slug(heading string) string {
	return strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// checkRunbook looks for the part of each signal, and for parts of none.
func checkRunbook(t Tree, r *Report) {
	page := string(t.Files[render.Runbook])
	headings := runbookPart.FindAllStringSubmatchIndex(page, -1)
	parts := map[observability.Key]string{}
	slugs := map[string]bool{}
	for i, h := range headings {
		end := len(page)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		key := observability.Key(page[h[2]:h[3]])
		if s := slug(string(key)); slugs[s] {
			r.add(key, "has the anchor of another part: %s", s)
		} else {
			slugs[s] = true
		}
		parts[key] = page[h[1]:end]
		if _, ok := t.entry(key); !ok {
			r.add(key, "is in the runbook and not in the catalog")
		}
	}
	for _, s := range t.Catalog {
		part, ok := parts[s.Key]
		if !ok {
			r.add(s.Key, "is not in the runbook")
			continue
		}
		watched := "**No alarm**: " + s.Waiver
		if s.Alarm != nil {
			watched = "**Alarm**: " + s.Alarm.String()
		}
		for _, want := range []string{s.Meaning, s.Action, watched} {
			if !strings.Contains(part, want) {
				r.add(s.Key, "its part of the runbook does not say %q", want)
			}
		}
		if !slugs[s.Anchor()] {
			r.add(s.Key, "the runbook has no anchor %s", s.Anchor())
		}
	}
}
