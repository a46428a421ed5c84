package ctl

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// There is no Erlang VM here, so eval runs no Erlang code. But the test suites of RabbitMQ's clients, and many runbooks, ask a node
// a few things by it: an expression that is one call of a function in calls, with terms and such calls as arguments, has its value.

func eval() verb {
	return verb{
		name: "eval", short: "Evaluates a call of one of a few functions that RabbitMQ's nodes have", max: -1, usage: "<expression>",
		long: "This node has no Erlang VM. It knows these functions: " + strings.Join(slices.Sorted(maps.Keys(calls)), ", ") + ".",
		run: func(i *invocation) error {
			if len(i.args) == 0 {
				text, err := io.ReadAll(io.LimitReader(os.Stdin, maxExpression))
				if err != nil {
					return err
				}
				i.args = []string{string(text)}
			}
			if strings.TrimSpace(i.args[0]) == "" {
				return badArgument("Expression must not be blank")
			}
			p := expression{rest: i.args[0]}
			e := p.term(0)
			if p.wrong == "" && (!p.take(".") || strings.TrimSpace(p.rest) != "") {
				p.fail()
			}
			if p.wrong != "" {
				return badArgument("there is no Erlang VM here: eval takes one call of a function that it knows, and a full stop. It does not understand: %s", p.wrong)
			}
			v, err := i.value(e)
			if err == nil {
				i.print("%s", v)
			}
			return err
		},
	}
}

const (
	maxExpression = 1 << 20 // bytes
	maxTerms      = 100     // of terms in terms
)

// The terms of an expression. Their texts are Erlang's.
type (
	atom   string
	quoted string // a number, a string or a binary, as it was written
	tuple  []any
	list   []any
	// call is a call of a function, "module:name" or "name".
	call struct {
		function  string
		arguments []any
	}
)

// String is the atom, in quotes where it needs some.
func (a atom) String() string {
	for i, r := range a {
		if r != '_' && r != '@' && !unicode.IsLetter(r) && !unicode.IsDigit(r) || i == 0 && !unicode.IsLower(r) {
			return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(string(a)) + "'"
		}
	}
	return string(a)
}

// String is the tuple in braces.
func (t tuple) String() string { return "{" + terms(t) + "}" }

// String is the list in brackets.
func (l list) String() string { return "[" + terms(l) + "]" }

func terms(list []any) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ",")
}

// calls are the functions that eval knows, by name and number of arguments.
var calls = map[string]func(*invocation, []any) (any, error){
	"node/0":        func(i *invocation, _ []any) (any, error) { return i.nodeAtom() },
	"erlang:node/0": func(i *invocation, _ []any) (any, error) { return i.nodeAtom() },
	// the other nodes of the cluster
	"nodes/0":             func(*invocation, []any) (any, error) { return list{}, nil },
	"erlang:nodes/0":      func(*invocation, []any) (any, error) { return list{}, nil },
	"rabbit:is_running/0": func(i *invocation, _ []any) (any, error) { return atom("true"), explain(i.get("whoami", nil)) },
	"rabbit_misc:version/0": func(i *invocation, _ []any) (any, error) {
		o, err := i.overview()
		return quoted(fmt.Sprintf("%q", o.RabbitMQ)), err
	},
	"rabbit_alarm:set_alarm/1": func(i *invocation, args []any) (any, error) {
		if t, ok := args[0].(tuple); ok && len(t) == 2 && fmt.Sprint(t[1]) == "[]" {
			return i.alarm(t[0], true)
		}
		return nil, noClause(true, args[0])
	},
	"rabbit_alarm:clear_alarm/1": func(i *invocation, args []any) (any, error) { return i.alarm(args[0], false) },
	"rabbit_alarm:get_alarms/0": func(i *invocation, _ []any) (any, error) {
		o, n, err := i.thisNode()
		alarms := list{}
		for _, a := range []struct {
			on   bool
			name atom
		}{{n.DiskAlarm, "disk"}, {n.MemoryAlarm, "memory"}} {
			if a.on {
				alarms = append(alarms, tuple{tuple{atom("resource_limit"), a.name, atom(o.Node)}, list{}})
			}
		}
		return alarms, err
	},
	"rabbit_deprecated_features:is_permitted/1": func(i *invocation, args []any) (any, error) {
		var features []struct{ Name, State string }
		err := i.get("deprecated-features", &features)
		for _, f := range features {
			if atom(f.Name) == args[0] && f.State != "permitted" {
				return atom("false"), nil
			}
		}
		return atom("true"), explain(err) // as RabbitMQ says of a feature that it does not know
	},
}

func (i *invocation) nodeAtom() (any, error) {
	o, err := i.overview()
	return atom(o.Node), err
}

// alarm raises the alarm {resource_limit, memory or disk, the node}, or takes that back.
func (i *invocation) alarm(what any, on bool) (any, error) {
	t, ok := what.(tuple)
	if !ok || len(t) != 3 || t[0] != atom("resource_limit") || t[1] != atom("memory") && t[1] != atom("disk") {
		return nil, noClause(on, what)
	}
	if node, err := i.nodeAtom(); err != nil || t[2] != node {
		if err == nil {
			err = fail(exitData, "Evaluation failed: %v is not this node, which is %v", t[2], node)
		}
		return nil, err
	}
	return atom("ok"), explain(i.put("control/alarm", object{"alarm": string(t[1].(atom)), "active": on}))
}

func noClause(set bool, what any) error {
	takes := "clear_alarm takes {resource_limit, memory, node()}"
	if set {
		takes = "set_alarm takes {{resource_limit, memory, node()}, []}"
	}
	return fail(exitData, "Evaluation failed: rabbit_alarm:%s here, or disk in place of memory, not %v", takes, what)
}

// value evaluates the calls in a term, from inside.
func (i *invocation) value(v any) (any, error) {
	each := func(list []any) ([]any, error) {
		values := make([]any, len(list))
		for k, v := range list {
			var err error
			if values[k], err = i.value(v); err != nil {
				return nil, err
			}
		}
		return values, nil
	}
	switch v := v.(type) {
	case tuple:
		values, err := each(v)
		return tuple(values), err
	case list:
		values, err := each(v)
		return list(values), err
	case call:
		name := fmt.Sprintf("%s/%d", v.function, len(v.arguments))
		do := calls[name]
		if do == nil {
			return nil, fail(exitUnavailable, "eval does not know %s: this node has no Erlang VM. It knows %s", name, strings.Join(slices.Sorted(maps.Keys(calls)), ", "))
		}
		args, err := each(v.arguments)
		if err != nil {
			return nil, err
		}
		return do(i, args)
	}
	return v, nil
}

// expression is what is left of one. After a fault wrong is what stands there.
type expression struct {
	rest  string
	wrong string
}

func (p *expression) blank() { p.rest = strings.TrimLeftFunc(p.rest, unicode.IsSpace) }

func (p *expression) fail() {
	if p.wrong == "" {
		p.wrong = p.rest[:min(len(p.rest), 40)]
		if p.wrong == "" {
			p.wrong = "the end"
		}
	}
	p.rest = ""
}

// take takes a text if it is what comes next.
func (p *expression) take(text string) (ok bool) {
	p.blank()
	p.rest, ok = strings.CutPrefix(p.rest, text)
	return ok
}

// while takes letters as long as they are so.
func (p *expression) while(so func(r rune) bool) (taken string) {
	n := len(p.rest) - len(strings.TrimLeftFunc(p.rest, so))
	taken, p.rest = p.rest[:n], p.rest[n:]
	return taken
}

func (p *expression) term(depth int) any {
	p.blank()
	switch r := first(p.rest); {
	case depth > maxTerms || p.rest == "":
	case p.take("{"):
		return tuple(p.list("}", depth))
	case p.take("["):
		return list(p.list("]", depth))
	case strings.HasPrefix(p.rest, `"`), strings.HasPrefix(p.rest, `<<"`):
		return p.text()
	case r == '\'' || unicode.IsLower(r):
		name := p.name()
		if p.take(":") {
			name += ":" + p.name()
		}
		if p.take("(") {
			return call{name, p.list(")", depth)}
		}
		if !strings.Contains(name, ":") {
			return atom(name)
		}
	case unicode.IsDigit(r) || r == '-':
		sign, digits := p.while(func(r rune) bool { return r == '-' }), p.while(unicode.IsDigit)
		if len(sign) <= 1 && digits != "" {
			return quoted(sign + digits)
		}
	}
	p.fail()
	return nil
}

// first is the first character of a text, RuneError of an empty one.
func first(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// name takes an atom, with quotes or without.
func (p *expression) name() string {
	if !p.take("'") {
		return p.while(func(r rune) bool { return r == '_' || r == '@' || unicode.IsLetter(r) || unicode.IsDigit(r) })
	}
	name, rest, ok := strings.Cut(p.rest, "'")
	if p.rest = rest; !ok {
		p.fail()
	}
	return name
}

// text takes a string or a binary of one.
func (p *expression) text() any {
	from := p.rest
	binary := p.take("<<")
	p.take(`"`)
	end := 0
	for end < len(p.rest) && p.rest[end] != '"' {
		if p.rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(p.rest) {
		p.fail()
		return nil
	}
	if p.rest = p.rest[end+1:]; binary && !p.take(">>") {
		p.fail()
	}
	return quoted(from[:len(from)-len(p.rest)])
}

// list takes terms with commas between, to the closing bracket.
func (p *expression) list(end string, depth int) (terms []any) {
	if p.take(end) {
		return nil
	}
	for p.wrong == "" {
		terms = append(terms, p.term(depth+1))
		if p.take(end) {
			return terms
		}
		if !p.take(",") {
			p.fail()
		}
	}
	return nil
}
