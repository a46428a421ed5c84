package bartleby_test

import (
	"path"
	"strings"
	"testing"
)

// Every package has one package comment, which says what it is for.
func TestOnePackageDocEach(t *testing.T) {
	docs := map[string][]string{} // files with a package comment, by directory
	for _, f := range sources(t) {
		dir := path.Dir(f.name)
		if docs[dir] == nil {
			docs[dir] = []string{}
		}
		if f.ast.Doc == nil {
			continue
		}
		docs[dir] = append(docs[dir], f.name)
		want := "Package " + f.ast.Name.Name + " "
		command := path.Base(dir)
		if f.ast.Name.Name == "main" {
			want = "Command " + command + " "
		}
		text := f.ast.Doc.Text()
		// "Brokerbench measures" is the other way Go has to begin a command's.
		if !strings.HasPrefix(text, want) && !strings.HasPrefix(text, strings.ToUpper(command[:1])+command[1:]+" ") {
			first, _, _ := strings.Cut(text, "\n")
			t.Errorf("%s: the package comment begins %q, want %q: what the package is for, no licence", f.name, first, want)
		}
	}
	for dir, files := range docs {
		if len(files) != 1 {
			t.Errorf("%s has %d package comments, want one: %s", dir, len(files), strings.Join(files, " "))
		}
	}
}
