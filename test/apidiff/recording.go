package apidiff

import (
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// The recording is a text: each resource after "== ", then its status, then a
// line for each path.
const (
	recordingFile = "testdata/rabbitmq-4.3.txt"
	metricsFile   = "testdata/metrics-4.3.txt"
)

func writeRecording(w io.Writer, order []string, shapes map[string][]string) error {
	for _, r := range order {
		if _, err := fmt.Fprintf(w, "== %s\n%s\n", r, strings.Join(shapes[r], "\n")); err != nil {
			return err
		}
	}
	return nil
}

func readRecording(file string) (map[string][]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	shapes := map[string][]string{}
	for part := range strings.SplitSeq("\n"+strings.TrimSpace(string(text)), "\n== ") {
		if name, rest, ok := strings.Cut(part, "\n"); ok {
			shapes[name] = strings.Split(strings.TrimSpace(rest), "\n")
		}
	}
	return shapes, nil
}

// exception allows some differences: those of resources and paths that match. Both
// are patterns of path.Match in which a slash is like any other byte.
type exception struct {
	resource, path string
	used           bool
}

const (
	exceptionFile        = "testdata/exceptions.txt"
	metricsExceptionFile = "testdata/metrics-exceptions.txt"
)

// readExceptions reads lines of "RESOURCE PATH reason".
func readExceptions(file string) (list []*exception, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 3 {
			return nil, fmt.Errorf("%s: an exception without a reason: %s", file, line)
		}
		list = append(list, &exception{resource: f[0], path: f[1]})
	}
	return list, nil
}

func (e *exception) allows(resource, line string) bool {
	p, _, _ := strings.Cut(strings.TrimPrefix(line, "# "), " ")
	if !matches(e.resource, resource) || !matches(e.path, p) {
		return false
	}
	e.used = true
	return true
}

func matches(pattern, text string) bool {
	literal := strings.NewReplacer("/", "\x01", "[", "\x02", "]", "\x03", "?", "\x04")
	ok, err := path.Match(literal.Replace(pattern), literal.Replace(text))
	return err == nil && ok
}
