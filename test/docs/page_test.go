package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the repository's, as seen from this package.
const root = "../.."

// block is a fenced block of a page that one of the tests looks at.
type block struct {
	kind string // what is behind the language: "run", "run java", "output", "from FILE"
	text string
	line int // of the page, where the text begins
}

func (b block) runs() bool { return b.kind == "run" || b.kind == "run java" }

// page is a page of the user's, in English or Chinese.
type page struct {
	file   string
	blocks []block
}

var fence = regexp.MustCompile("(?ms)^```[a-z]+ (run|run java|output|from \\S+)\n(.*?)^```$")

// pages are all of the user's.
func pages(t *testing.T) (all []page) {
	t.Helper()
	for _, pattern := range []string{"docs/user/*.md", "docs/user/guides/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no pages %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := page{file: file}
			for _, at := range fence.FindAllSubmatchIndex(text, -1) {
				p.blocks = append(p.blocks, block{
					kind: string(text[at[2]:at[3]]), text: string(text[at[4]:at[5]]), line: 1 + strings.Count(string(text[:at[4]]), "\n"),
				})
			}
			all = append(all, p)
		}
	}
	return all
}

func (p page) at(b block) string { return fmt.Sprintf("%s:%d", p.file, b.line) }

// A page in Chinese shows and runs what the one in English does.
func TestChinesePagesHaveTheSameBlocks(t *testing.T) {
	english := map[string]page{}
	chinese := 0
	for _, p := range pages(t) {
		name, ok := strings.CutSuffix(p.file, ".zh.md")
		if !ok {
			english[strings.TrimSuffix(p.file, ".md")] = p
			continue
		}
		chinese++
		other, ok := english[name] // comes first: .md is before .zh.md
		if !ok {
			t.Errorf("%s has no page in English", p.file)
			continue
		}
		if len(p.blocks) != len(other.blocks) {
			t.Errorf("%s has %d blocks, %s has %d", p.file, len(p.blocks), other.file, len(other.blocks))
			continue
		}
		for i, b := range p.blocks {
			if b.kind != other.blocks[i].kind || b.text != other.blocks[i].text {
				t.Errorf("%s is not what is at %s", p.at(b), other.at(other.blocks[i]))
			}
		}
	}
	if chinese == 0 {
		t.Error("no page is in Chinese")
	}
}

// What a page quotes stands in the file that it names.
func TestQuotationsAreOfTheirFiles(t *testing.T) {
	quotations := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			name, ok := strings.CutPrefix(b.kind, "from ")
			if !ok {
				continue
			}
			quotations++
			file, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				t.Errorf("%s: %v", p.at(b), err)
				continue
			}
			if piece, ok := quoted(b.text, string(file)); !ok {
				t.Errorf("%s: not in %s in this order:\n%s", p.at(b), name, piece)
			}
		}
	}
	if quotations == 0 {
		t.Error("no page quotes a file")
	}
}

// quoted says whether each piece of a quotation stands in the file after the piece before
// it, all lines of a piece moved in by as much; if not, which does not.
func quoted(quotation, file string) (piece string, ok bool) {
	lines := strings.Split(file, "\n")
	for _, piece := range strings.Split(quotation, "…\n") {
		want := strings.Split(strings.TrimRight(piece, "\n"), "\n")
		found := -1
		for at := range lines {
			if at+len(want) <= len(lines) && sameLines(want, lines[at:at+len(want)]) {
				found = at
				break
			}
		}
		if found < 0 {
			return piece, false
		}
		lines = lines[found+len(want):]
	}
	return "", true
}

// sameLines compares lines but for the indentation that they have in common.
func sameLines(a, b []string) bool {
	indent := func(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }
	inA, inB := indent(a[0]), indent(b[0])
	for i := range a {
		if a[i] == "" && b[i] == "" {
			continue
		}
		x, okA := strings.CutPrefix(a[i], inA)
		y, okB := strings.CutPrefix(b[i], inB)
		if !okA || !okB || x != y {
			return false
		}
	}
	return true
}

func TestQuoted(t *testing.T) {
	const file = "class A {\n    int a;\n\n    int b() {\n        return a;\n    }\n}\n"
	for _, c := range []struct {
		quotation string
		ok        bool
	}{
		{"int a;\n", true},
		{"int a;\n\nint b() {\n    return a;\n}\n", true},
		{"class A {\n…\n    }\n", true},
		{"int b() {\n…\nint a;\n", false},
		{"int b() {\nreturn a;\n", false},
		{"int c;\n", false},
	} {
		if _, ok := quoted(c.quotation, file); ok != c.ok {
			t.Errorf("%q: %v, want %v", c.quotation, ok, c.ok)
		}
	}
}
