//go:build unix

package docs

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bartleby.mq/test/node"
)

var withJava = flag.Bool("java", false, "run the commands that need Java too: test/interop/java/setup and test/interop/spring/setup must have been run")

// Every command of a page does what it says: it ends well, on an empty node, in the
// order of the page, and prints what the page shows.
func TestCommandsOfTheUserPages(t *testing.T) {
	bin := t.TempDir()
	path, err := node.Build(bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"rabbitmqctl", "rabbitmqadmin", "rabbitmq-diagnostics"} {
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	run := 0
	for _, p := range pages(t) {
		if strings.HasSuffix(p.file, ".zh.md") || !p.hasCommands() {
			continue
		}
		run++
		t.Run(strings.TrimPrefix(p.file, root+"/docs/user/"), func(t *testing.T) {
			t.Parallel()
			p.run(t, path)
		})
	}
	if run == 0 {
		t.Error("no page has a command that is run")
	}
}

func (p page) hasCommands() bool {
	for _, b := range p.blocks {
		if b.runs() {
			return true
		}
	}
	return false
}

// run runs the page's commands in one session of bash. Beside it is what a reader has
// there: ./data, which is the node's, and the repository's test/.
func (p page) run(t *testing.T, bin string) {
	dir := t.TempDir()
	n, err := node.Start(node.Options{Bin: bin, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	}()
	tests, err := filepath.Abs(filepath.Join(root, "test"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(tests, filepath.Join(dir, "test")); err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n")
	var chosen []block
	output := map[int]block{} // of chosen blocks
	for i, b := range p.blocks {
		if b.kind == "run" || b.kind == "run java" && *withJava {
			if next := i + 1; next < len(p.blocks) && p.blocks[next].kind == "output" {
				output[len(chosen)] = p.blocks[next]
			}
			// set -e lets "! COMMAND" pass, the last status does not.
			fmt.Fprintf(&script, "exec >%d.out 2>%[1]d.err\n%s[ $? -eq 0 ]\n", len(chosen), b.text)
			chosen = append(chosen, b)
		}
	}
	addresses := strings.NewReplacer("127.0.0.1:15672", n.HTTP, "127.0.0.1:5672", n.AMQP, "127.0.0.1:15692", n.Prometheus)
	c := exec.Command("bash", "-c", addresses.Replace(script.String()))
	c.Dir = dir
	// The directory is named so that a command that finds no node there is not one for what
	// else listens on the machine.
	c.Env = append(node.Environment(), "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"), "BARTLEBY_DATA_DIR="+filepath.Join(dir, "data"))
	said, failed := c.CombinedOutput()
	for i, b := range chosen {
		out, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i, ".out")))
		if err != nil {
			t.Errorf("%s was not run", p.at(b))
			continue
		}
		if want, ok := output[i]; ok && !sameOutput(want.text, string(out)) {
			t.Errorf("%s prints\n%swhich is not what is at %s", p.at(b), out, p.at(want))
		}
	}
	if failed != nil {
		t.Errorf("%v %s", failed, said)
		for i := len(chosen) - 1; i >= 0; i-- { // the last that was begun
			if text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i, ".err"))); err == nil {
				t.Errorf("%s:\n%s", p.at(chosen[i]), text)
				break
			}
		}
	}
}

// sameOutput compares what was printed with what a page shows.
func sameOutput(want, got string) bool {
	pattern := regexp.MustCompile("(?m)^…\n").ReplaceAllString(regexp.QuoteMeta(want), "(?:.*\n)*")
	pattern = strings.ReplaceAll(pattern, "…", ".*")
	return regexp.MustCompile("^" + pattern + "$").MatchString(got)
}
