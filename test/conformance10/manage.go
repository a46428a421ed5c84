package main

import (
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// wait waits until a queue has as many messages ready, or as many consumers, as the step says.
func wait(p *player, a *args) ([]string, error) {
	if p.watcher == nil {
		c, err := p.dial091()
		if err != nil {
			return nil, err
		}
		p.watcher = c
	}
	if p.watcher.ch.IsClosed() {
		if err := p.watcher.open(); err != nil {
			return nil, err
		}
	}
	var q amqp.Queue
	var err error
	until(p.timeout, func() bool {
		q, err = p.watcher.ch.QueueDeclarePassive(a.text("queue", ""), true, false, false, false, nil)
		return err != nil || (!a.has("ready") || q.Messages == a.number("ready", 0)) && (!a.has("consumers") || q.Consumers == a.number("consumers", 0))
	})
	if e, ok := err.(*amqp.Error); ok {
		return []string{fmt.Sprintf("channel closed: %d %s", e.Code, e.Reason)}, nil
	}
	var words []string
	if a.has("ready") {
		words = append(words, fmt.Sprintf("ready=%d", q.Messages))
	}
	if a.has("consumers") {
		words = append(words, fmt.Sprintf("consumers=%d", q.Consumers))
	}
	return []string{strings.Join(words, " ")}, err
}

func sleep(_ *player, a *args) ([]string, error) {
	time.Sleep(time.Duration(a.number("ms", 0)) * time.Millisecond)
	return nil, nil
}

// settleTime is left to a broker after a policy changes, to apply it.
const settleTime = 300 * time.Millisecond

func setPolicy(p *player, a *args) ([]string, error) {
	definition, err := plain(a.nodes["definition"], p.expand)
	if err != nil {
		return nil, err
	}
	content := map[string]any{"pattern": a.text("pattern", ""), "definition": definition, "priority": a.number("priority", 0), "apply-to": a.text("apply_to", "all")}
	status, reply, err := p.api.call("PUT", "/policies/"+p.vhost+"/"+url.PathEscape(a.text("name", "")), content)
	if err != nil {
		return nil, err
	}
	time.Sleep(settleTime)
	return showReply(status, reply), nil
}

func deletePolicy(p *player, a *args) ([]string, error) {
	status, reply, err := p.api.call("DELETE", "/policies/"+p.vhost+"/"+url.PathEscape(a.text("name", "")), nil)
	if err != nil {
		return nil, err
	}
	time.Sleep(settleTime)
	return showReply(status, reply), nil
}

// showReply shows a status, and why a request was refused.
func showReply(status int, reply any) []string {
	line := strconv.Itoa(status)
	if m, ok := reply.(map[string]any); ok && status >= 400 {
		if reason, ok := m["reason"].(string); ok {
			line += " " + strings.Join(strings.Fields(reason), " ")
		}
	}
	return []string{line}
}

// createUser makes a user of this scenario alone; $name stands for its real name.
func createUser(p *player, a *args) ([]string, error) {
	name := a.text("name", "")
	real := p.vhost + "-" + name
	p.vars[name] = real
	p.users = append(p.users, real)
	return nil, p.api.must("PUT", "/users/"+real, map[string]any{"password": a.text("password", ""), "tags": a.text("tags", "")})
}

func permit(p *player, a *args) ([]string, error) {
	path := "/permissions/" + p.vhost + "/" + p.vars[a.text("user", "")]
	return nil, p.api.must("PUT", path, map[string]any{"configure": a.text("configure", ""), "write": a.text("write", ""), "read": a.text("read", "")})
}

func topicPermit(p *player, a *args) ([]string, error) {
	path := "/topic-permissions/" + p.vhost + "/" + p.vars[a.text("user", "")]
	return nil, p.api.must("PUT", path, map[string]any{"exchange": a.text("exchange", ""), "write": a.text("write", ""), "read": a.text("read", "")})
}

// manage sends any request and shows the chosen fields of the reply, once they have the values under until.
func manage(p *player, a *args) ([]string, error) {
	var content any
	if n := a.nodes["content"]; n != nil {
		var err error
		if content, err = plain(n, p.expand); err != nil {
			return nil, err
		}
	}
	want := map[string]any{}
	if n := a.nodes["until"]; n != nil {
		v, err := plain(n, p.expand)
		if err != nil {
			return nil, err
		}
		var ok bool
		if want, ok = v.(map[string]any); !ok {
			return nil, errors.New("until is a map")
		}
	}
	var status int
	var reply any
	var failed error
	until(2*p.timeout, func() bool {
		status, reply, failed = p.api.call(a.text("method", "GET"), a.text("path", ""), content)
		m, _ := reply.(map[string]any)
		for k, v := range want {
			if failed == nil && showJSON(m[k]) != showJSON(v) {
				time.Sleep(100 * time.Millisecond)
				return false
			}
		}
		return true
	})
	if failed != nil {
		return nil, failed
	}
	lines := showReply(status, reply)
	list, ok := reply.([]any)
	if !ok {
		list = []any{reply}
	}
	var shown []string
	for _, e := range list {
		m, ok := e.(map[string]any)
		if !ok || !a.has("fields") {
			continue
		}
		var words []string
		for _, f := range a.words("fields") {
			words = append(words, f+"="+showJSON(m[f]))
		}
		shown = append(shown, strings.Join(words, " "))
	}
	sort.Strings(shown)
	return append(lines, shown...), nil
}

// restart restarts the broker with the command of -restart and connects again.
func restart(p *player, _ *args) ([]string, error) {
	for _, c := range p.clients {
		c.stop()
	}
	p.clients, p.sessions, p.links, p.pairs = map[string]*client{}, map[string]*session{}, map[string]*link{}, map[string]bool{}
	p.old, p.watcher = nil, nil
	if out, err := exec.Command("sh", "-c", p.restart).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("restart: %w: %s", err, out)
	}
	for range 200 {
		if status, _, err := p.api.call("GET", "/vhosts/"+p.vhost, nil); err == nil && status == 200 {
			if err := p.start(); err == nil {
				return nil, nil
			}
		}
		time.Sleep(250 * time.Millisecond)
	}
	return nil, errors.New("the broker did not come back")
}
