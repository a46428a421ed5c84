package ctl

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// jobChange is one difference that an edit makes.
type jobChange struct {
	What          string
	Before, After any
	Cut           bool
}

func (c *jobChange) line() string {
	show := func(v any) string {
		if v == nil {
			return "(none)"
		}
		text, _ := encode(v)
		return cutText(text, 200)
	}
	return fmt.Sprintf("%s\n  - %s\n  + %s", plain(c.What), show(c.Before), show(c.After))
}

const editHelp = `It says what would change; with --yes it does that, as a job of the node. The original is in the queue bartleby.archive afterwards, for 7 days. --then replay (the default) sends the letter to where it was first published, or where --to-queue, --to-exchange
or --routing-key say; --then stay leaves it in its queue.

A VALUE is JSON if it can be read so: 5, true, {"a":1}, "5"; else it is text. A header keeps its type where the value fits. Without any change, and on a terminal, $VISUAL or $EDITOR opens the body.

Exit codes: 0: the job has begun, or with --watch is done, or it was a dry run; 1: the letter cannot be edited now; 64: --yes is missing; 65: a name or value is wrong; 75: with --watch: it is halted; 77: not allowed; other codes: it failed.`

type editOptions struct {
	jobOptions
	bodyFile, then                                     string
	setHeader, unsetHeader, setProperty, unsetProperty []string
}

func (o *editOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.bodyFile, "body-file", "", "file with the new body; - is the standard input")
	f.StringArrayVar(&o.setHeader, "set-header", nil, "NAME=VALUE")
	f.StringArrayVar(&o.unsetHeader, "unset-header", nil, "NAME: take this header out")
	f.StringArrayVar(&o.setProperty, "set-property", nil, "NAME=VALUE, such as type=order.placed")
	f.StringArrayVar(&o.unsetProperty, "unset-property", nil, "NAME: take this property out")
	f.StringVar(&o.then, "then", "replay", "replay or stay")
	f.StringVar(&o.toQueue, "to-queue", "", "send it to this queue")
	f.StringVar(&o.toExchange, "to-exchange", "", "send it to this exchange; amq.default is the default exchange")
	f.StringVar(&o.key, "routing-key", "", "send it with this routing key")
	f.StringVar(&o.because, "because", "", "why: it stands with the job and in the audit log")
	f.BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
	f.BoolVar(&o.yes, "yes", false, "do it")
	f.BoolVar(&o.watch, "watch", false, "wait for the end")
}

// jsonOr is a value in JSON, or text.
func jsonOr(s string) any {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return s
	}
	return v
}

// numberProperties are those that are numbers; all others are text, whatever they look like.
var numberProperties = []string{"delivery_mode", "priority", "timestamp"}

// edit is what the options say.
func (o *editOptions) edit(i *invocation) (object, error) {
	edit, headers, properties := object{}, object{}, object{}
	for _, each := range o.setHeader {
		name, value, ok := strings.Cut(each, "=")
		if !ok {
			return nil, badArgument("--set-header '%s' must be NAME=VALUE", each)
		}
		headers[name] = jsonOr(value)
	}
	for _, name := range o.unsetHeader {
		headers[name] = nil
	}
	for _, each := range o.setProperty {
		name, value, ok := strings.Cut(each, "=")
		if !ok {
			return nil, badArgument("--set-property '%s' must be NAME=VALUE", each)
		}
		if properties[name] = value; slices.Contains(numberProperties, name) {
			properties[name] = jsonOr(value)
		}
	}
	for _, name := range o.unsetProperty {
		properties[name] = nil
	}
	if len(headers) > 0 {
		edit["headers"] = headers
	}
	if len(properties) > 0 {
		edit["properties"] = properties
	}
	var body []byte
	var err error
	switch {
	case o.bodyFile == "-":
		body, err = io.ReadAll(os.Stdin)
	case o.bodyFile != "":
		body, err = os.ReadFile(o.bodyFile)
	case len(edit) == 0 && hasTerminal():
		body, err = i.editBody()
	case len(edit) == 0:
		return nil, badArgument("nothing changes, and there is no terminal for an editor: --body-file, --set-header, --unset-header, --set-property or --unset-property say what")
	default:
		return edit, nil
	}
	if err != nil {
		var known *failure
		if errors.As(err, &known) {
			return nil, err
		}
		return nil, fail(exitData, "%v", err)
	}
	edit["body"], edit["body_encoding"] = base64.StdEncoding.EncodeToString(body), "base64"
	return edit, nil
}

// hasTerminal says whether an editor has a terminal to be used on.
func hasTerminal() bool {
	_, in := terminalWidth(os.Stdin)
	_, out := terminalWidth(os.Stdout)
	return in && out
}

// editBody lets the user edit the body of the letter.
func (i *invocation) editBody() ([]byte, error) {
	body, err := i.download("office/letters/" + path(i.vhost, i.args[0], i.args[1]) + "/body")
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(body) {
		return nil, fail(exitData, "The body is no text: --body-file has the new one")
	}
	f, err := os.CreateTemp("", "letter-*.txt")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(body)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	editor := "vi"
	for _, name := range []string{"EDITOR", "VISUAL"} {
		if v := os.Getenv(name); v != "" {
			editor = v
		}
	}
	words := strings.Fields(editor)
	run := exec.CommandContext(i.ctx, words[0], append(words[1:], f.Name())...) //nolint:gosec // the user's own editor
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := run.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w", editor, err)
	}
	return os.ReadFile(f.Name())
}

func (i *invocation) editLetter(o *editOptions) error {
	edit, err := o.edit(i)
	if err != nil {
		return err
	}
	body := object{"action": "edit", "vhost": i.vhost, "queues": i.args[:1], "ids": i.args[1:], "edit": edit, "then": o.then, "reason": o.because}
	for flag, v := range map[string]any{"to-queue": o.toQueue, "to-exchange": o.toExchange, "routing-key": o.key} {
		if i.set(flag) {
			body[strings.ReplaceAll(flag, "-", "_")] = v
		}
	}
	return i.runJob(&o.jobOptions, "edit", body)
}

// rawRequest is a request whose body or answer is no JSON, and which may take long.
func (i *invocation) rawRequest(method, at string, body io.Reader) (io.ReadCloser, error) {
	c := i.api
	req, err := http.NewRequestWithContext(i.ctx, method, c.base+"/api/"+at, body)
	if err != nil {
		return nil, fail(exitUsage, "%v", err)
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	if c.dir == "" {
		req.SetBasicAuth(c.user, c.password)
	}
	c.http.Timeout = i.limit(0) // no timeout unless --timeout was given
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode < 300 {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return nil, jobFailed(refusal(resp.StatusCode, text))
}

func (i *invocation) download(at string) ([]byte, error) {
	answer, err := i.rawRequest(http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Close() }()
	body, err := io.ReadAll(answer)
	if err != nil {
		return nil, i.api.unreachable(err)
	}
	return body, nil
}

func (i *invocation) exportLetters(o *searchOptions, file string) error {
	query, err := i.letterQuery(o)
	if err != nil {
		return err
	}
	answer, err := i.rawRequest(http.MethodGet, "office/export/"+path(i.vhost, i.args[0])+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	to := i.out
	if file != "" {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600) // letters may have secrets; and nothing is written over
		if err != nil {
			return fail(exitData, "%v", err)
		}
		defer func() { _ = f.Close() }()
		to = f
	}
	n, lines := 0, bufio.NewReader(answer)
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) == 0:
			if file != "" {
				i.say("%s written to %s.", counted(n, "letter"), file)
			}
			if n == 0 {
				return noneFound{}
			}
			return nil
		case err != nil:
			return i.api.unreachable(err) // within a line
		}
		if bytes.HasPrefix(line, []byte(`{"error":`)) {
			var e struct{ Reason string }
			_ = json.Unmarshal(line, &e)
			return fail(exitUnavailable, "The export has ended early, after %s: %s", counted(n, "letter"), e.Reason)
		}
		if _, err := to.Write(line); err != nil {
			return fail(exitData, "%v", err)
		}
		n++
		line = line[:0]
	}
}

// sizeOf is how many bytes a file has; 0 if that is not known.
func sizeOf(r io.Reader) int64 {
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return info.Size()
		}
	}
	return 0
}

func (i *invocation) importLetters() error {
	var from io.Reader = os.Stdin
	if name := i.args[1]; name != "-" {
		f, err := os.Open(name) //nolint:gosec // the user names it
		if err != nil {
			return fail(exitData, "%v", err)
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	line := i.newProgress()
	defer line.clear()
	if line != nil {
		from = &progressReader{Reader: from, line: line, all: sizeOf(from)}
	}
	answer, err := i.rawRequest(http.MethodPost, "office/import/"+path(i.vhost, i.args[0]), from)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	var r struct {
		Imported int
		Refused  []struct {
			Line int
			Why  string
		}
		More int `json:"refused_more"`
	}
	if err := json.NewDecoder(answer).Decode(&r); err != nil {
		return fail(exitSoftware, "cannot read the answer: %v", err)
	}
	line.clear()
	i.print("%s imported.", counted(r.Imported, "letter"))
	for _, l := range r.Refused {
		i.print("  line %d: %s", l.Line, printable(l.Why))
	}
	if r.More > 0 {
		i.print("  and %d lines more", r.More)
	}
	if len(r.Refused) > 0 {
		if n := len(r.Refused) + r.More; n > 1 {
			return fail(exitTempFail, "%d lines were refused", n)
		}
		return fail(exitTempFail, "1 line was refused")
	}
	return nil
}

func dlqTransferVerbs() []verb {
	var s searchOptions
	var file string
	e := &editOptions{}
	return []verb{
		{
			name: "edit", short: "Changes one dead letter", min: 2, max: 2, flags: e.flags, long: editHelp,
			usage: "[--vhost <vhost>] [--body-file <file>] [--set-header <name>=<value>] [--unset-header <name>] [--set-property <name>=<value>] [--unset-property <name>] [--then replay|stay] [--to-queue <queue>] [--to-exchange <exchange>] [--routing-key <key>] [--because <text>] [--watch] --dry-run | --yes <queue> <id>",
			run:   func(i *invocation) error { return i.editLetter(e) },
		},
		{
			name: "export", short: "Writes dead letters of a queue, one a line of JSON", min: 1, max: 1, usage: "[--vhost <vhost>] [filters] [--file <file>] <queue>",
			long: "The lines have everything: properties, headers with their AMQP types, bodies, histories. 'dlq import' puts them into a queue again. The letters stay where they are.\n\nExit codes: 0: done; 1: no letter is selected; 65: a name or value is wrong, or the file is there already; 69: it ended early; 77: not allowed; other codes: it failed.",
			flags: func(f *pflag.FlagSet) {
				s.filterFlags(f)
				f.StringVar(&file, "file", "", "a new file to write to; else the standard output")
			},
			run: func(i *invocation) error { return i.exportLetters(&s, file) },
		},
		{
			name: "import", short: "Puts exported letters into a queue", min: 2, max: 2, usage: "[--vhost <vhost>] <queue> <file>|-",
			long: "It needs permission to configure the queue and to write to it. A line that is refused is named, and the others are imported.\n\nExit codes: 0: done; 65: a name is wrong; 69: the node does not accept messages; 75: lines were refused; 77: not allowed; other codes: it failed.",
			run:  func(i *invocation) error { return i.importLetters() },
		},
	}
}
