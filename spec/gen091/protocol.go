package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// protocol is the content of the table.
type protocol struct {
	classes []class
	codes   []code
}

type class struct {
	name    string
	id      uint16
	methods []method
}

type method struct {
	name    string // without its class, as in "declare-ok"
	id      uint16
	sender  string // client, server or both
	sync    bool
	content bool
	doc     string
	fields  []field
}

type field struct {
	name   string
	kind   string // octet, short, ... as in the table
	secret bool
}

// reserved reports whether the field's value is neither kept nor shown.
func (f field) reserved() bool { return strings.HasPrefix(f.name, "reserved-") }

type code struct {
	number uint16
	name   string
	scope  string // channel, connection or none
	doc    string
}

// parseProtocol reads the table. Errors name the line.
func parseProtocol(text string) (protocol, error) {
	var p protocol
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := p.addLine(line); err != nil {
			return protocol{}, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return p, nil
}

// addLine takes in one line that is neither blank nor comment.
func (p *protocol) addLine(line string) error {
	head, doc, _ := strings.Cut(line, " : ")
	words, doc := strings.Fields(head), strings.TrimSpace(doc)
	switch words[0] {
	case "class":
		return p.addClass(words[1:])
	case "method":
		return p.addMethod(words[1:], doc)
	case "code":
		return p.addCode(words[1:], doc)
	}
	return p.addField(words)
}

func (p *protocol) addClass(words []string) error {
	if len(words) != 2 {
		return fmt.Errorf("want class NAME ID")
	}
	id, err := number(words[1])
	if err != nil {
		return err
	}
	p.classes = append(p.classes, class{name: words[0], id: id})
	return nil
}

func (p *protocol) addMethod(words []string, doc string) error {
	if len(p.classes) == 0 {
		return fmt.Errorf("a method before the first class")
	}
	if len(words) < 3 || doc == "" {
		return fmt.Errorf("want method NAME ID SENDER [sync] [content] : what it does")
	}
	id, err := number(words[1])
	if err != nil {
		return err
	}
	m := method{name: words[0], id: id, sender: words[2], doc: doc}
	if !slices.Contains([]string{"client", "server", "both"}, m.sender) {
		return fmt.Errorf("no sender is called %q", m.sender)
	}
	for _, w := range words[3:] {
		switch w {
		case "sync":
			m.sync = true
		case "content":
			m.content = true
		default:
			return fmt.Errorf("no attribute is called %q", w)
		}
	}
	c := &p.classes[len(p.classes)-1]
	for _, other := range c.methods {
		if other.id == m.id || other.name == m.name {
			return fmt.Errorf("%s.%s %d: %s.%s %d is there already", c.name, m.name, m.id, c.name, other.name, other.id)
		}
	}
	c.methods = append(c.methods, m)
	return nil
}

func (p *protocol) addField(words []string) error {
	if len(p.classes) == 0 || len(p.classes[len(p.classes)-1].methods) == 0 {
		return fmt.Errorf("a field before the first method")
	}
	if len(words) < 2 || len(words) > 3 || len(words) == 3 && words[2] != "secret" {
		return fmt.Errorf("want FIELD TYPE [secret]")
	}
	if _, ok := fieldKinds[words[1]]; !ok {
		return fmt.Errorf("no field type is called %q", words[1])
	}
	methods := p.classes[len(p.classes)-1].methods
	m := &methods[len(methods)-1]
	m.fields = append(m.fields, field{name: words[0], kind: words[1], secret: len(words) == 3})
	return nil
}

func (p *protocol) addCode(words []string, doc string) error {
	if len(words) != 3 || doc == "" {
		return fmt.Errorf("want code NUMBER NAME SCOPE : when")
	}
	n, err := number(words[0])
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"channel", "connection", "none"}, words[2]) {
		return fmt.Errorf("no scope is called %q", words[2])
	}
	p.codes = append(p.codes, code{number: n, name: words[1], scope: words[2], doc: doc})
	return nil
}

func number(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}
