package metrics

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The page for users lists the families that /metrics/detailed has, and marks those that nothing else has.
func TestThePageListsTheFamilies(t *testing.T) {
	page, err := os.ReadFile("../../../docs/user/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "_metrics`") && !strings.Contains(cells[2], "_detailed_") && !strings.Contains(cells[2], "own names") {
			continue
		}
		for n, word := range strings.Split(cells[1], "`") {
			if n%2 == 1 {
				listed = append(listed, word)
			}
		}
	}
	var have []string
	for _, f := range families {
		if f.name != "" {
			have = append(have, f.name)
		}
	}
	slices.Sort(listed)
	slices.Sort(have)
	if !slices.Equal(listed, have) {
		t.Errorf("the page lists\n%q, and there are\n%q", listed, have)
	}
	for _, f := range families {
		if f.onRequest && !strings.Contains(string(page), "`"+f.name+"`*") {
			t.Errorf("the page does not say that only /metrics/detailed has %s", f.name)
		}
	}
}
