package ctl_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/client/ctl"
)

// The examples are Microsoft's ("Parsing C command-line arguments"), and what is between
// the lines of its rules.
func TestSplitCommandLine(t *testing.T) {
	for line, want := range map[string][]string{
		`p "abc" d e`:      {"p", "abc", "d", "e"},
		`p a\\b d"e f"g h`: {"p", `a\\b`, "de fg", "h"},
		`p a\\\"b c d`:     {"p", `a\"b`, "c", "d"},
		`p a\\\\"b c" d e`: {"p", `a\\b c`, "d", "e"},
		`p a"b"" c d`:      {"p", `ab" c d`},
		`p`:                {"p"},
		``:                 {""},
		"p \t a  b ":       {"p", "a", "b"},
		`p "" a ""`:        {"p", "", "a", ""},
		`p a\ b\`:          {"p", `a\`, `b\`},
		`p "open`:          {"p", "open"},
		`p "a\\"`:          {"p", `a\`},
		`p "é ü"`:          {"p", "é ü"},
		`"C:\Program Files\rabbitmqctl.exe" status`: {`C:\Program Files\rabbitmqctl.exe`, "status"},
		`"C:\x\" status`:      {`C:\x\`, "status"},
		`C:\"x y"\z.exe a`:    {`C:\x y\z.exe`, "a"},
		`p "{""a"":""b c""}"`: {"p", `{"a":"b c"}`},
		`p """a"""`:           {"p", `"a"`},
	} {
		if got := ctl.SplitCommandLine(line); !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", line, got, want)
		}
	}
}

var shellBlocks = regexp.MustCompile("(?ms)^```(bat|powershell 5\\.1|powershell 7|text)\n(.*?)^```$")

// Each line that docs/user/windows.md has for a shell sets the policy that the page shows
// at its end.
func TestWindowsCommandLines(t *testing.T) {
	page, err := os.ReadFile("../../../docs/user/windows.md")
	if err != nil {
		t.Fatal(err)
	}
	url, _ := node(t)
	t.Setenv("BARTLEBY_URL", url)
	blocks := shellBlocks.FindAllStringSubmatch(string(page), -1)
	last := len(blocks) - 1
	if last < 5 || blocks[last][1] != "text" {
		t.Fatalf("the page has %d blocks, and not the list at its end", len(blocks))
	}
	for _, block := range blocks[:last] {
		shell, line := block[1], strings.TrimSpace(block[2])
		if shell != "bat" {
			line = powershell(line, shell == "powershell 5.1")
		}
		args := ctl.SplitCommandLine(line)[1:]
		if code, _, errs := run(args...); code != 0 {
			t.Errorf("%s: %s\n%q\nexit %d, %s", shell, block[2], args, code, errs)
		}
		if _, out, errs := run("list_policies", "-q"); out != blocks[last][2] {
			t.Errorf("%s: %s\n%q\nthe policies are\n%s%s", shell, block[2], args, out, errs)
		}
		if code, _, errs := run("clear_policy", "DLX"); code != 0 {
			t.Error(errs)
		}
	}
}

// powershell is the command line that PowerShell makes of a line of bare words and quoted
// texts. Until 7.3 it put quotes around what has blanks and left those within alone; since
// then every argument arrives as it was.
func powershell(line string, old bool) string {
	var parts []string
	for _, word := range regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`).FindAllString(line, -1) {
		if strings.ContainsAny(word[:1], `'"`) {
			word = word[1 : len(word)-1]
		}
		quote := strings.ContainsAny(word, " \t")
		if !old && strings.Contains(word, `"`) {
			word, quote = strings.ReplaceAll(word, `"`, `\"`), true
		}
		if quote {
			word = `"` + word + `"`
		}
		parts = append(parts, word)
	}
	return strings.Join(parts, " ")
}

// The forms in which set_policy is found in guides and scripts, older ones among them.
func TestFormsOfSetPolicy(t *testing.T) {
	url, _ := node(t)
	t.Setenv("BARTLEBY_URL", url)
	const json = `{"dead-letter-exchange":"my-dlx"}`
	for _, form := range []struct {
		args []string
		want string // vhost, name, pattern, apply-to, priority
	}{
		{[]string{"set_policy", "DLX", ".*", json, "--apply-to", "queues"}, "/ DLX .* queues 0"},
		{[]string{"set_policy", "--apply-to", "queues", "DLX", ".*", json}, "/ DLX .* queues 0"},
		{[]string{"set_policy", "--apply-to=queues", "--priority=7", "DLX", ".*", json}, "/ DLX .* queues 7"},
		{[]string{"set_policy", "DLX", ".*", json}, "/ DLX .* all 0"},
		{[]string{"set_policy", "--", "DLX", ".*", json}, "/ DLX .* all 0"},
		{[]string{"set_policy", "--priority", "-1", "DLX", ".*", json}, "/ DLX .* all -1"},
		{[]string{"set_policy", "-p", "/", "DLX", ".*", json}, "/ DLX .* all 0"},
		{[]string{"-p", "/", "set_policy", "DLX", ".*", json}, "/ DLX .* all 0"},
		{[]string{"set_policy", "DLX", ".*", json, "-p", "/"}, "/ DLX .* all 0"},
		{[]string{"set_policy", "DLX", ".*", json, "--vhost", "/", "--priority", "5", "--apply-to", "classic_queues"}, "/ DLX .* classic_queues 5"},
		{[]string{"-n", "rabbit@host", "-q", "set_policy", "DLX", ".*", json, "--apply-to", "exchanges"}, "/ DLX .* exchanges 0"},
	} {
		if code, _, errs := run(form.args...); code != 0 {
			t.Errorf("%q: exit %d, %s", form.args, code, errs)
		}
		_, out, errs := run("list_policies", "-s")
		got := strings.Join(strings.Fields(strings.Replace(out, json, "", 1)), " ")
		if got != form.want {
			t.Errorf("%q\nset %s%s\nwant %s", form.args, got, errs, form.want)
		}
		if code, _, errs := run("clear_policy", "DLX"); code != 0 {
			t.Error(errs)
		}
	}
}
