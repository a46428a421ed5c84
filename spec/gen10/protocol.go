package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// protocol is the content of the table.
type protocol struct {
	parts []part
}

// A part is a part of the standard; its files are generated together.
type part struct {
	name       string
	restricted []restricted
	composites []composite
	sections   []composite // without fields
	conditions []condition
}

// A restricted type is one with a fixed set of values.
type restricted struct {
	name, source, section, doc string
	choices                    []choice
}

type choice struct{ name, value string }

// A composite type is a described list with named fields. A section of a message that is no list is kept
// as one without fields.
type composite struct {
	name       string
	descriptor uint8
	section    string
	source     string // what the descriptor's name ends in
	doc        string
	fields     []field
}

type field struct {
	name      string
	kind      string
	mandatory bool
	def       string // "" if it has no default
	secret    bool
}

type condition struct{ name, value, section, doc string }

// parseProtocol reads the table. Errors name the line.
func parseProtocol(text string) (protocol, error) {
	r := tableReader{restricted: map[string]restricted{}, taken: map[string]bool{}}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := r.addLine(line); err != nil {
			return protocol{}, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return r.protocol, nil
}

// tableReader reads the table line by line. What is indented belongs to the line before.
type tableReader struct {
	protocol   protocol
	restricted map[string]restricted // all so far
	taken      map[string]bool       // names and descriptors
	within     string                // restricted or composite, if that is what the last line was
}

func (r *tableReader) addLine(line string) error {
	head, doc, _ := strings.Cut(line, " : ")
	words, doc := strings.Fields(head), strings.TrimSpace(doc)
	if line[0] == ' ' {
		switch r.within {
		case "restricted":
			return r.addChoice(words)
		case "composite":
			return r.addField(words)
		}
		return fmt.Errorf("nothing that %s can belong to", words[0])
	}
	if words[0] == "part" {
		if len(words) != 2 {
			return fmt.Errorf("want part NAME")
		}
		r.within = ""
		r.protocol.parts = append(r.protocol.parts, part{name: words[1]})
		return nil
	}
	if len(r.protocol.parts) == 0 {
		return fmt.Errorf("%s before the first part", words[0])
	}
	if doc == "" {
		return fmt.Errorf("%s without words about it", words[0])
	}
	r.within = words[0]
	p := &r.protocol.parts[len(r.protocol.parts)-1]
	switch {
	case words[0] == "restricted" && len(words) == 4:
		if !slices.Contains([]string{"boolean", "ubyte", "uint", "symbol"}, words[2]) {
			return fmt.Errorf("no source of a restricted type is called %q", words[2])
		}
		p.restricted = append(p.restricted, restricted{name: words[1], source: words[2], section: words[3], doc: doc})
		return r.take(words[1])
	case words[0] == "composite" && len(words) == 4:
		c, err := r.composite(words, "list", doc)
		p.composites = append(p.composites, c)
		return err
	case words[0] == "section" && len(words) == 5:
		c, err := r.composite(words[:4], words[4], doc)
		p.sections = append(p.sections, c)
		return err
	case words[0] == "condition" && len(words) == 4:
		p.conditions = append(p.conditions, condition{words[1], words[2], words[3], doc})
		return r.take("condition " + words[1])
	}
	return fmt.Errorf("no such line: %s", strings.TrimSpace(line))
}

// take refuses what is there already.
func (r *tableReader) take(name string) error {
	if r.taken[name] {
		return fmt.Errorf("%s is there already", name)
	}
	r.taken[name] = true
	return nil
}

func (r *tableReader) composite(words []string, source, doc string) (composite, error) {
	n, err := strconv.ParseUint(words[2], 0, 7) // so that every descriptor is a smallulong
	if err != nil {
		return composite{}, err
	}
	if err := r.take(fmt.Sprintf("descriptor %#x", n)); err != nil {
		return composite{}, err
	}
	return composite{name: words[1], descriptor: uint8(n), section: words[3], source: source, doc: doc}, r.take(words[1])
}

func (r *tableReader) addChoice(words []string) error {
	if len(words) != 2 {
		return fmt.Errorf("want CHOICE VALUE")
	}
	p := &r.protocol.parts[len(r.protocol.parts)-1]
	t := &p.restricted[len(p.restricted)-1]
	if t.source == "ubyte" || t.source == "uint" {
		if words[1] != strconv.Itoa(len(t.choices)) {
			return fmt.Errorf("numbers of choices count from 0")
		}
	}
	t.choices = append(t.choices, choice{words[0], words[1]})
	r.restricted[t.name] = *t
	return nil
}

func (r *tableReader) addField(words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("want FIELD TYPE [mandatory] [default=VALUE] [secret]")
	}
	f := field{name: words[0], kind: words[1]}
	_, isRestricted := r.restricted[f.kind]
	if _, ok := fieldKinds[f.kind]; !ok && !isRestricted {
		return fmt.Errorf("no field type is called %q", f.kind)
	}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "mandatory":
			f.mandatory = true
		case "secret":
			f.secret = true
		case "default":
			f.def = value
		default:
			return fmt.Errorf("no attribute is called %q", w)
		}
	}
	if t := r.restricted[f.kind]; f.def != "" && isRestricted && !slices.ContainsFunc(t.choices, func(c choice) bool { return c.name == f.def }) {
		return fmt.Errorf("%s has no choice %q", f.kind, f.def)
	}
	p := &r.protocol.parts[len(r.protocol.parts)-1]
	c := &p.composites[len(p.composites)-1]
	c.fields = append(c.fields, f)
	return nil
}
