package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// TestScripts plays testdata/*.txt, each against a broker of its own. A request is
// a line with method, path and body; the line below holds the status expected, and
// what else there is: a Location, a body, or after ~ a part of the body (members of
// an object, or in a list the elements in order). "as user:password" changes who
// asks. Scripts named strict-* are played in strict mode. Unless marked [Bartleby], the answers are RabbitMQ 4.3.6's.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n := start(t)
			if strings.HasPrefix(filepath.Base(file), "strict-") {
				n.b.Strict = true
			}
			lines := strings.Split(string(text), "\n")
			for i := 0; i < len(lines); i++ {
				line := strings.TrimSpace(lines[i])
				switch {
				case line == "" || strings.HasPrefix(line, "#"):
				case strings.HasPrefix(line, "as "):
					n.user = strings.TrimPrefix(line, "as ")
				default:
					i++
					if i == len(lines) {
						t.Fatalf("%s:%d: a request without an expectation", file, i)
					}
					if err := n.play(line, strings.TrimSpace(lines[i])); err != nil {
						t.Errorf("%s:%d: %s\n%v", file, i, line, err)
					}
				}
			}
		})
	}
}

func (n *node) play(request, expected string) error {
	method, rest, _ := strings.Cut(request, " ")
	path, body, _ := strings.Cut(rest, " ")
	a := n.do(method, path, body)
	first, rest, _ := strings.Cut(expected, " ")
	if status, err := strconv.Atoi(first); err != nil || status != a.status {
		return fmt.Errorf("got  %d %s\nwant %s", a.status, a.body, expected)
	}
	if location, ok := strings.CutPrefix(rest, "Location: "); ok {
		if got := a.header.Get("Location"); got != location {
			return fmt.Errorf("got Location %q, want %q", got, location)
		}
		return nil
	}
	part, isPart := strings.CutPrefix(rest, "~")
	if part = strings.TrimSpace(part); part == "" {
		if a.body != "" && !isPart {
			return fmt.Errorf("got a body: %s", a.body)
		}
		return nil
	}
	var got, want any
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		return fmt.Errorf("got %q: %w", a.body, err)
	}
	if err := json.Unmarshal([]byte(part), &want); err != nil {
		return fmt.Errorf("expectation: %w", err)
	}
	if isPart && !contains(got, want) || !isPart && !reflect.DeepEqual(got, want) {
		return fmt.Errorf("got  %s\nwant %s", a.body, rest)
	}
	return nil
}

// contains says whether got has all that want has.
func contains(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range want {
			if inner, ok := g[k]; !ok || !contains(inner, v) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(want) {
			return false
		}
		for i := range want {
			if !contains(g[i], want[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(got, want)
}
