package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`) // of a heading, in its anchor
)

// Every link of a page to a file or a heading of the repository has an end.
func TestLinksLeadSomewhere(t *testing.T) {
	links := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/user/guides/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no pages %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range link.FindAllStringSubmatch(string(text), -1) {
				target, anchor := m[1], m[2]
				if strings.Contains(target, ":") {
					continue
				}
				links++
				at := file
				if target != "" {
					at = filepath.Join(filepath.Dir(file), target)
				}
				if _, err := os.Stat(at); err != nil {
					t.Errorf("%s: %s: %v", file, m[0], err)
				} else if anchor != "" && !hasAnchor(t, at, anchor) {
					t.Errorf("%s: %s: no such heading", file, m[0])
				}
			}
		}
	}
	if links == 0 {
		t.Error("no page has a link")
	}
}

// hasAnchor says whether a page has the heading that an anchor stands for.
func hasAnchor(t *testing.T, file, anchor string) bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		slug := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if slug == anchor {
			return true
		}
	}
	return false
}
