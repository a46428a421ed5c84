package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// player is one scenario being played in a virtual host of its own.
type player struct {
	options
	api   *management
	vhost string
	node  string // what the broker calls itself

	clients    map[string]*client
	sessions   map[string]*session
	links      map[string]*link
	pairs      map[string]bool      // sessions with a pair of links to /management
	deliveries map[string]*delivery // what was received, by the names of messages
	old        *client091
	watcher    *client091
	vars       map[string]string // names a step has saved, written $name in the scenario
	users      []string
}

// delivery is a message that was received and can be settled.
type delivery struct {
	link *link
	id   uint32
}

// kind is what plays a step, and the arguments it knows; the first is meant when a step has only one word. It returns
// what it saw; an error ends the scenario.
type kind struct {
	play func(*player, *args) ([]string, error)
	args string
}

var kinds map[string]kind

// args are the arguments of one step.
type args struct {
	p     *player
	nodes map[string]*yaml.Node
}

func (a *args) has(name string) bool { return a.nodes[name] != nil }

func (a *args) text(name, def string) string {
	if n := a.nodes[name]; n != nil {
		return a.p.expand(n.Value)
	}
	return def
}

// number returns a whole number. A step that is wrong here is broken, and says so by a panic that the player catches.
func (a *args) number(name string, def int) int {
	n := a.nodes[name]
	if n == nil {
		return def
	}
	v, err := strconv.ParseInt(n.Value, 0, 64)
	if err != nil {
		panic(fmt.Sprintf("line %d: %s: %v", n.Line, name, err))
	}
	return int(v)
}

func (a *args) is(name string, def bool) bool {
	if n := a.nodes[name]; n != nil {
		return n.Value == "true"
	}
	return def
}

// words are the elements of a list, or a single one.
func (a *args) words(name string) []string {
	n := a.nodes[name]
	if n == nil {
		return nil
	}
	if n.Kind == yaml.ScalarNode {
		return []string{a.p.expand(n.Value)}
	}
	var list []string
	for _, c := range n.Content {
		list = append(list, a.p.expand(c.Value))
	}
	return list
}

// play runs a scenario and returns its transcript.
func play(s *scenario, o options) []string {
	var id [6]byte
	_, _ = rand.Read(id[:])
	p := &player{
		options: o, api: &management{base: o.mgmt, credentials: o.url, timeout: o.timeout},
		vhost:   "conformance-" + hex.EncodeToString(id[:]),
		clients: map[string]*client{}, sessions: map[string]*session{}, links: map[string]*link{}, pairs: map[string]bool{},
		deliveries: map[string]*delivery{}, vars: map[string]string{},
	}
	p.vars["vhost"] = p.vhost
	lines := []string{"# " + s.Name}
	add := func(more ...string) {
		for _, l := range more {
			lines = append(lines, strings.Split(normalise(l, p.vhost, p.node), "\n")...)
		}
	}
	defer p.cleanUp()
	if err := p.api.createVhost(p.vhost); err != nil {
		add("! no vhost: " + err.Error())
		return lines
	}
	if _, reply, err := p.api.call("GET", "/overview", nil); err == nil {
		if m, ok := reply.(map[string]any); ok {
			p.node, _ = m["node"].(string)
		}
	}
	if !s.Bare {
		if err := p.start(); err != nil {
			add("! no connection: " + err.Error())
			return lines
		}
	}
	for _, st := range s.Steps {
		add("> " + st.text)
		seen, err := p.limited(st)
		for _, l := range seen {
			add("  " + l)
		}
		if err != nil {
			add("! " + err.Error())
			break
		}
	}
	return lines
}

// start opens the connection "main" and the session "s" that steps use by default.
func (p *player) start() error {
	for _, kind := range []string{"connect", "begin"} {
		seen, err := kinds[kind].play(p, &args{p: p, nodes: map[string]*yaml.Node{"brief": {Kind: yaml.ScalarNode, Value: "true"}}})
		if err == nil && len(seen) > 0 {
			err = errors.New(strings.Join(seen, " | "))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// limited runs one step, giving up on it when it exceeds its limit.
func (p *player) limited(st step) ([]string, error) {
	a := &args{p: p, nodes: st.args}
	limit := 2*p.timeout + time.Second // steps that wait give up by themselves before that
	switch st.kind {
	case "restart":
		limit = 2 * time.Minute
	case "sleep", "quiet", "receive":
		limit += time.Duration(a.number("ms", 0)) * time.Millisecond
	}
	type result struct {
		seen []string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- result{nil, fmt.Errorf("broken step: %v", r)}
			}
		}()
		seen, err := kinds[st.kind].play(p, a)
		done <- result{seen, err}
	}()
	select {
	case r := <-done:
		return r.seen, r.err
	case <-time.After(limit):
		return nil, errors.New("timed out")
	}
}

// until calls f every few milliseconds until it says true or the limit is reached.
func until(limit time.Duration, f func() bool) bool {
	deadline := time.Now().Add(limit)
	for {
		if f() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(15 * time.Millisecond)
	}
}

func (p *player) cleanUp() {
	for _, c := range p.clients {
		c.stop()
	}
	for _, c := range []*client091{p.old, p.watcher} {
		if c != nil {
			_ = c.socket.Close()
		}
	}
	for _, u := range p.users {
		_, _, _ = p.api.call("DELETE", "/users/"+u, nil)
	}
	_ = p.api.deleteVhost(p.vhost)
}

// expand replaces a word such as $name by the value saved under that name.
func (p *player) expand(s string) string {
	if !strings.Contains(s, "$") {
		return s
	}
	names := sortedKeys(p.vars)
	sort.SliceStable(names, func(i, j int) bool { return len(names[i]) > len(names[j]) })
	for _, name := range names {
		s = strings.ReplaceAll(s, "$"+name, p.vars[name])
	}
	return s
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// address is where the broker takes connections.
func (p *player) address() string {
	u, err := url.Parse(p.url)
	if err != nil {
		return p.url
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "5672")
	}
	return u.Host
}

// credentials are those of a user of the scenario, or of the run if name is empty.
func (p *player) credentials(name, password string) (string, string) {
	if name != "" {
		if real, ok := p.vars[name]; ok {
			name = real
		}
		return name, password
	}
	u, err := url.Parse(p.url)
	if err != nil || u.User == nil {
		return "guest", "guest"
	}
	password, _ = u.User.Password()
	return u.User.Username(), password
}

func (p *player) client(a *args) (*client, error) {
	name := a.text("conn", "main")
	if c := p.clients[name]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("there is no connection %q", name)
}

func (p *player) session(a *args) (*session, error) {
	name := a.text("s", "s")
	if s := p.sessions[name]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("there is no session %q", name)
}

func (p *player) link(a *args) (*link, error) {
	name := a.text("link", "")
	if name == "" && len(p.links) == 1 {
		for _, l := range p.links {
			return l, nil
		}
	}
	if l := p.links[name]; l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("there is no link %q", name)
}

func (p *player) encoder() encoder { return encoder{p.expand} }
