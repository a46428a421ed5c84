package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestStepsAreReadAndShown(t *testing.T) {
	var s scenario
	err := yaml.Unmarshal([]byte(`
steps:
- queue: q
- close:
- receive: {link: r, count: 2}
- publish: {body: "a,b", properties: {message-id: !uuid 00, to: ""}, data: !hex 00}
`), &s)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"queue q", "close", "receive {link: r, count: 2}", `publish {body: "a,b", properties: {message-id: !uuid 00, to: ""}, data: !hex 00}`}
	for i, st := range s.Steps {
		if st.text != want[i] {
			t.Errorf("step %d is shown as %s, not as %s", i, st.text, want[i])
		}
	}
	if got := s.Steps[0].args["name"].Value; got != "q" {
		t.Errorf("the queue is called %q", got)
	}
}

func TestWrongStepsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"steps: [{nothing: x}]":               `no step "nothing"`,
		"steps: [{queue: {nam: x}}]":          `no argument "nam"`,
		"steps: [{queue: x, publish: y}]":     "a map of one key",
		"steps: [queue]":                      "a map of one key",
		"steps: [{publish: {bodies: [a]}}]":   `no argument "bodies"`,
		"steps: [{disposition: {state1: 1}}]": `no argument "state1"`,
	} {
		var s scenario
		if err := yaml.Unmarshal([]byte(text), &s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Every scenario can be read, says what it is for, and has a transcript that ends well.
func TestScenariosHaveTranscripts(t *testing.T) {
	scenarios, err := find([]string{"scenarios"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		lines, err := readGolden(s.golden())
		if err != nil {
			t.Error(err)
			continue
		}
		if lines[0] != "# "+s.Name {
			t.Errorf("%s has the transcript of %s", s.Name, lines[0])
		}
		steps := 0
		for _, l := range lines {
			if strings.HasPrefix(l, "! ") {
				t.Errorf("%s: the transcript broke off: %s", s.Name, l)
			}
			if rest, ok := strings.CutPrefix(l, "> "); ok {
				if steps < len(s.Steps) && rest != generated.ReplaceAllString(s.Steps[steps].text, "<generated>") {
					t.Errorf("%s: the transcript is of another version: %s", s.Name, l)
				}
				steps++
			}
		}
		if steps != len(s.Steps) {
			t.Errorf("%s: %d steps, and a transcript of %d", s.Name, len(s.Steps), steps)
		}
	}
	goldens, err := filepath.Glob("scenarios/*/*.golden")
	if err != nil || len(goldens) != len(scenarios) {
		t.Errorf("%d transcripts of %d scenarios, %v", len(goldens), len(scenarios), err)
	}
}

func TestFirstDifferenceIsTold(t *testing.T) {
	want := []string{"# s", "> queue q", "> receive c", "  message"}
	if got := difference(want, want); got != "" {
		t.Errorf("equal transcripts differ: %s", got)
	}
	for _, c := range []struct {
		got  []string
		want string
	}{
		{[]string{"# s", "> queue q", "> receive c", "  1 did not come"}, "line 4, step receive c: expected message | got 1 did not come"},
		{want[:3], "line 4, step receive c: expected message | got (end of transcript)"},
	} {
		if got := difference(want, c.got); got != c.want {
			t.Errorf("got %s", got)
		}
	}
}

// The list of divergences names scenarios that exist.
func TestDivergencesAreOfScenarios(t *testing.T) {
	text, err := os.ReadFile("divergences.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) < 3 {
			t.Errorf("a divergence without a reason: %s", line)
			continue
		}
		for name := range strings.SplitSeq(words[1], ",") {
			if _, err := os.Stat("scenarios/" + name + ".yaml"); err != nil {
				t.Error(err)
			}
		}
	}
}
