package tools

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/apidiff"
	"bartleby.mq/test/node"
)

// Each tool finds what it needs, on a node of its own.
func TestTools(t *testing.T) {
	dir := t.TempDir()
	bin, err := node.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no tools", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			start(t, bin).play(string(text))
		})
	}
}

// player plays one file.
type player struct {
	*testing.T
	http string
	node string
	ch   *amqp.Channel

	request string
	status  int
	header  http.Header
	body    any
}

func start(t *testing.T, bin string) *player {
	t.Helper()
	n, err := node.Start(node.Options{Bin: bin, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	conn, err := amqp.Dial("amqp://guest:guest@" + n.AMQP + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p := &player{T: t, http: "http://" + n.HTTP + "/api/"}
	if p.ch, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	p.send("GET", "overview", "")
	p.node, _ = p.body.(map[string]any)["node"].(string)
	return p
}

func (p *player) play(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(strings.ReplaceAll(line, "NODE", p.node), "\n")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "  "):
			p.want(strings.TrimSpace(line))
		default:
			p.do(line)
		}
	}
}

func (p *player) do(line string) {
	method, rest, _ := strings.Cut(line, " ")
	path, body, _ := strings.Cut(rest, " ")
	name, err := url.PathUnescape(path)
	if err != nil {
		p.Fatal(err)
	}
	switch method {
	case "PUBLISH":
		n, err := strconv.Atoi(body)
		if err != nil {
			p.Fatal(line, err)
		}
		p.publish(name, n)
	case "CONSUME":
		if _, ok, err := p.ch.Get(name, false); err != nil || !ok {
			p.Fatal(line, ok, err)
		}
	default:
		p.send(method, path, body)
	}
}

// publish returns when the queue has the messages.
func (p *player) publish(queue string, n int) {
	for range n {
		if err := p.ch.Publish("", queue, false, false, amqp.Publishing{Body: []byte("m"), Timestamp: time.Unix(1700000000, 0)}); err != nil {
			p.Fatal(err)
		}
	}
	if _, err := p.ch.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil {
		p.Fatal(err)
	}
}

func (p *player) send(method, path, body string) {
	p.Helper()
	r, err := http.NewRequest(method, p.http+path, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	r.SetBasicAuth("guest", "guest")
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Fatal(err)
	}
	p.request, p.status, p.header, p.body = method+" "+path, resp.StatusCode, resp.Header, nil
	if len(text) > 0 {
		if err := json.Unmarshal(text, &p.body); err != nil {
			p.Fatalf("%s: %v: %s", p.request, err, text)
		}
	}
}

// want checks one expectation of the last answer.
func (p *player) want(line string) {
	f := strings.SplitN(line, " ", 3)
	if f[0] == "=" {
		if fmt.Sprint(p.status) != f[1] {
			p.Errorf("%s: status %d, want %s: %v", p.request, p.status, f[1], p.body)
		}
		return
	}
	if name, ok := strings.CutPrefix(f[0], "@"); ok {
		if got := p.header.Get(name); got != f[1] {
			p.Errorf("%s: %s is %q, want %q", p.request, name, got, f[1])
		}
		return
	}
	found, ok := find(p.body, strings.Split(strings.ReplaceAll(f[0], "[]", ".[]"), "."))
	if !ok {
		p.Errorf("%s: there is no %s", p.request, f[0])
		return
	}
	for _, v := range found {
		if f[1] != "any" && apidiff.TypeOf(v) != f[1] {
			p.Errorf("%s: %s is of type %s, want %s", p.request, f[0], apidiff.TypeOf(v), f[1])
		}
		if len(f) == 3 && fmt.Sprint(v) != f[2] {
			p.Errorf("%s: %s is %v, want %s", p.request, f[0], v, f[2])
		}
	}
}

// find returns the values at a path; ok is false if an element has none.
func find(v any, path []string) (found []any, ok bool) {
	for len(path) > 0 && path[0] == "" {
		path = path[1:]
	}
	if len(path) == 0 {
		return []any{v}, true
	}
	if path[0] == "[]" {
		list, isList := v.([]any)
		if !isList || len(list) == 0 {
			return nil, false
		}
		for _, e := range list {
			inner, ok := find(e, path[1:])
			if !ok {
				return nil, false
			}
			found = append(found, inner...)
		}
		return found, true
	}
	object, isObject := v.(map[string]any)
	if !isObject {
		return nil, false
	}
	next, ok := object[path[0]]
	if !ok {
		return nil, false
	}
	return find(next, path[1:])
}
