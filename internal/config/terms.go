package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"bartleby.mq/internal/wire/erlterm"
)

// terms turns the settings of a file of Erlang terms, advanced.config or rabbitmq.config, into lines of rabbitmq.conf. What has a
// name there is then obeyed, refused or idle like a line of it; of everything else there is a warning.
type terms struct {
	file     string
	lines    []line
	warnings []Warning
	failed   []error
	// set are the settings of the file, by the keys of rabbitmq.conf: each replaces all lines of that key, and below it, that
	// other files have, as in RabbitMQ.
	set []string
}

// readTerms reads a file. An empty one says nothing.
func readTerms(f File) *terms {
	t := &terms{file: f.Name}
	all, err := erlterm.Read(f.Text)
	var syntax *erlterm.SyntaxError
	switch {
	case errors.As(err, &syntax):
		t.failed = append(t.failed, &Error{f.Name, syntax.Line, "", syntax.Text})
		return t
	case len(all) == 0:
		return t
	case len(all) > 1:
		t.fail(all[1], "", "a second term: the file has one list of applications")
		return t
	}
	for _, a := range t.elements(all[0], "") {
		name, settings, ok := pair(a)
		if !ok {
			t.fail(a, "", "is not of the form {application, [settings]}")
			continue
		}
		t.application(name, settings)
	}
	return t
}

// application is one of Erlang's, with its settings.
func (t *terms) application(name string, settings erlterm.Term) {
	app, known := applications[name]
	if !known {
		t.tell(settings, name, "there is no such application here")
		return
	}
	for _, s := range t.elements(settings, name) {
		setting, value, ok := pair(s)
		if !ok {
			t.fail(s, name, "is not of the form {setting, value}")
			continue
		}
		source := name + "." + setting
		base, renamed := app.names[setting]
		if !renamed {
			base = app.prefix + setting
		}
		if why, secret := refusedTerms[source]; secret {
			t.fail(s, source, "is not supported: "+why)
			continue
		}
		t.forget(base)
		if special := specialTerms[source]; special != nil {
			special(t, base, value)
		} else {
			t.value(base, source, value)
		}
	}
}

// forget drops what was said of a key and of those below it.
func (t *terms) forget(base string) {
	t.set = append(t.set, base)
	t.lines = slices.DeleteFunc(t.lines, func(l line) bool { return within(l.key, base) })
}

// within says whether a key is base or below it.
func within(key, base string) bool {
	for _, b := range append([]string{base}, otherNames[base]...) {
		if rest, ok := strings.CutPrefix(key, b); ok && (rest == "" || rest[0] == '.') {
			return true
		}
	}
	return false
}

// otherNames are further keys of rabbitmq.conf for the same setting.
var otherNames = map[string][]string{
	"max_connections": {"connection_max"}, "channel_max": {"max_channels_per_connection"},
}

// value adds lines for a value of any form: a scalar, a list of such, or a list of settings.
func (t *terms) value(key, source string, v erlterm.Term) {
	if text, ok := scalar(v); ok {
		t.add(key, source, v.Line, text)
		return
	}
	switch list := v.Value.(type) {
	case erlterm.Group:
		if name, encrypted, ok := pair(v); ok && name == "encrypted" {
			t.fail(encrypted, source, "the value is encrypted, which is not supported")
			return
		}
		t.unread(v, key, source)
	case erlterm.Map:
		for i := 0; i+1 < len(list); i += 2 {
			name, _ := scalar(list[i])
			t.below(key, source, name, list[i+1])
		}
	case erlterm.List:
		if !slices.ContainsFunc(list, func(e erlterm.Term) bool { _, group := e.Value.(erlterm.Group); return group }) {
			for i, e := range list {
				text, ok := scalar(e)
				if !ok {
					t.unread(e, key, source)
					continue
				}
				t.add(key+"."+strconv.Itoa(i+1), source, e.Line, text)
			}
			return
		}
		for _, e := range list {
			name, value, ok := pair(e)
			if !ok {
				t.unread(e, key, source)
				continue
			}
			t.below(key, source, name, value)
		}
	}
}

// unread is for a value of a form that is not read: a setting that rabbitmq.conf has must not be without its value.
func (t *terms) unread(v erlterm.Term, key, source string) {
	if lookUp(key) != nil {
		t.fail(v, source, "has a value of a form that is not read")
		return
	}
	t.tell(v, source, noName)
}

// below is value for a setting within a setting.
func (t *terms) below(key, source, name string, v erlterm.Term) {
	source += "." + name
	if name == "verify_fun" {
		t.fail(v, source, "is not supported: a function cannot verify certificates; name the authorities in cacertfile")
		return
	}
	renamed, ok := innerNames[key+"."+name]
	if !ok {
		renamed, ok = innerNames[name]
	}
	switch {
	case ok && renamed == "":
		t.value(key, source, v)
	case ok:
		t.value(key+"."+renamed, source, v)
	default:
		t.value(key+"."+escaped(name), source, v)
	}
}

// add adds a line, if rabbitmq.conf has its key.
func (t *terms) add(key, source string, number int, value string) {
	if lookUp(key) == nil {
		t.warnings = append(t.warnings, Warning{t.file, number, source, noName})
		return
	}
	t.lines = append(t.lines, line{t.file, number, key, value})
}

// noName is the reason why a setting has no effect.
const noName = "rabbitmq.conf has no name for it, and it is not obeyed"

func (t *terms) tell(at erlterm.Term, source, why string) {
	t.warnings = append(t.warnings, Warning{t.file, at.Line, source, why})
}

func (t *terms) fail(at erlterm.Term, source, why string) {
	t.failed = append(t.failed, &Error{t.file, at.Line, source, why})
}

// elements are those of a list; anything else is wrong.
func (t *terms) elements(v erlterm.Term, source string) erlterm.List {
	list, ok := v.Value.(erlterm.List)
	if !ok {
		t.fail(v, source, "is not a list")
	}
	return list
}

// pair takes {name, value} apart. A name alone stands for {name, true}.
func pair(v erlterm.Term) (name string, value erlterm.Term, ok bool) {
	if atom, alone := v.Value.(erlterm.Atom); alone {
		return string(atom), erlterm.Term{Line: v.Line, Value: erlterm.Atom("true")}, true
	}
	group, _ := v.Value.(erlterm.Group)
	if len(group) != 2 {
		return "", v, false
	}
	name, ok = scalar(group[0])
	return name, group[1], ok
}

// scalar is a value that a line of rabbitmq.conf can have.
func scalar(v erlterm.Term) (text string, ok bool) {
	switch v := v.Value.(type) {
	case erlterm.Atom:
		return string(v), true
	case erlterm.Text:
		return string(v), true
	case erlterm.Binary:
		return string(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case erlterm.Group:
		return internetAddress(v)
	}
	return "", false
}

// internetAddress is an address as Erlang has it: a tuple of 4 bytes, or of 8 numbers of 16 bits.
func internetAddress(parts erlterm.Group) (text string, ok bool) {
	most := int64(math.MaxUint8)
	if len(parts) == 8 {
		most = math.MaxUint16
	}
	var raw []byte
	for _, p := range parts {
		n, whole := p.Value.(int64)
		if !whole || n < 0 || n > most {
			return "", false
		}
		if len(parts) == 8 {
			raw = append(raw, byte(n>>8))
		}
		raw = append(raw, byte(n))
	}
	a, ok := netip.AddrFromSlice(raw)
	return a.String(), ok
}

// replaced says whether a file of terms sets a key that is in another file.
func (t *terms) replaced(key string) bool {
	return slices.ContainsFunc(t.set, func(base string) bool { return within(key, base) })
}

// listeners are ports, and addresses with ports.
func listeners(t *terms, key string, v erlterm.Term) {
	list := t.elements(v, key)
	if all, is := v.Value.(erlterm.List); is && len(all) == 0 {
		t.add(key, key, v.Line, "none")
	}
	for i, e := range list {
		at := key + "." + strconv.Itoa(i+1)
		host, port, ok := pair(e)
		if number, whole := e.Value.(int64); whole {
			t.add(at, key, e.Line, strconv.FormatInt(number, 10))
			continue
		}
		number, whole := scalar(port)
		switch {
		case !ok || !whole:
			t.fail(e, key, "is neither a port nor {Address, Port}")
		case host == "auto":
			t.add(at, key, e.Line, number)
		default:
			t.add(at, key, e.Line, host+":"+number)
		}
	}
}

// names are names that are on; none of them is the word none.
func names(t *terms, key string, v erlterm.Term) {
	list := t.elements(v, key)
	if lookUp(key) != nil {
		t.add(key, key, v.Line, "none")
	}
	for _, e := range list {
		name, ok := scalar(e)
		if !ok {
			t.fail(e, key, "is not a name")
			continue
		}
		t.add(key+"."+escaped(name), key, e.Line, "true")
	}
}

func permissions(t *terms, key string, v erlterm.Term) {
	list := t.elements(v, key)
	if len(list) != 3 {
		t.fail(v, key, "is not [Configure, Write, Read]")
		return
	}
	for i, name := range []string{"configure", "write", "read"} {
		t.value(key+"."+name, key, list[i])
	}
}

// backends are names, or pairs of them.
func backends(t *terms, key string, v erlterm.Term) {
	list, many := v.Value.(erlterm.List)
	if !many {
		oneBackend(t, key, v)
		return
	}
	for i, e := range list {
		oneBackend(t, key+"."+strconv.Itoa(i+1), e)
	}
}

func oneBackend(t *terms, key string, v erlterm.Term) {
	if name, ok := scalar(v); ok {
		t.add(key, key, v.Line, name)
		return
	}
	authn, authz, ok := pair(v)
	other, one := scalar(authz)
	if !ok || !one {
		t.fail(v, key, "is neither a backend nor {Backend, Backend}")
		return
	}
	t.add(key+".authn", key, v.Line, authn)
	t.add(key+".authz", key, v.Line, other)
}

// watermark is a share of the memory, {relative, Share}, or {absolute, Bytes}; a number alone is the one or the other.
func watermark(t *terms, key string, v erlterm.Term) {
	_, share := v.Value.(float64)
	form, value := "absolute", v
	if name, inner, ok := pair(v); ok {
		form, value = strings.TrimPrefix(name, "mem_"), inner
	} else if share {
		form = "relative"
	}
	t.value(key+"."+form, key, value)
}

// queueType is the name of a type, or of RabbitMQ's module for it.
func queueType(t *terms, key string, v erlterm.Term) {
	name, _ := scalar(v)
	t.add(key, key, v.Line, strings.TrimSuffix(strings.TrimPrefix(name, "rabbit_"), "_queue"))
}

// logs is rabbit.log: outputs and categories, where an output is on by enabled, and a file has its name within.
func logs(t *terms, key string, v erlterm.Term) {
	for _, e := range t.elements(v, key) {
		output, settings, ok := pair(e)
		if !ok {
			t.fail(e, key, "is not of the form {output, [settings]}")
			continue
		}
		if output == "categories" {
			for _, c := range t.elements(settings, key) {
				if category, inner, ok := pair(c); ok {
					t.value(key+"."+category, key+".categories."+category, inner)
				}
			}
			continue
		}
		for _, s := range t.elements(settings, key+"."+output) {
			name, value, ok := pair(s)
			switch at := key + "." + output; {
			case !ok:
				t.fail(s, at, "is not of the form {setting, value}")
			case name == "enabled" || name == output: // {file, [{file, "x.log"}]}
				t.value(at, at, value)
			case output == "file" && slices.Contains([]string{"date", "size", "count", "compress"}, name):
				t.value(at+".rotation."+name, at+"."+name, value)
			default:
				t.value(at+"."+name, at+"."+name, value)
			}
		}
	}
}

// logLevels is rabbit.log_levels of old releases: categories with levels.
func logLevels(t *terms, _ string, v erlterm.Term) {
	for _, e := range t.elements(v, "rabbit.log_levels") {
		if category, level, ok := pair(e); ok {
			t.value("log."+category+".level", "rabbit.log_levels."+category, level)
		}
	}
}

// clusterNodes is {[node], disc}, or a list of nodes.
func clusterNodes(t *terms, key string, v erlterm.Term) {
	if group, ok := v.Value.(erlterm.Group); ok && len(group) == 2 {
		v = group[0]
	}
	t.value(key, "rabbit.cluster_nodes", v)
}

// partitions is what a cluster does when it falls apart.
func partitions(t *terms, key string, v erlterm.Term) {
	if name, ok := scalar(v); ok {
		t.add(key, key, v.Line, name)
		return
	}
	t.add(key, key, v.Line, "pause_if_all_down")
}

// staticShovels is rabbitmq_shovel.shovels.
func staticShovels(t *terms, _ string, v erlterm.Term) {
	for _, e := range t.elements(v, "rabbitmq_shovel.shovels") {
		name, _, _ := pair(e)
		t.tell(e, "rabbitmq_shovel.shovels."+name, "shovels of a file are not run; make it with rabbitmqctl set_parameter shovel")
	}
}

// notConverted begins a line that a node refuses to start with, because it is not of the form key = value.
const notConverted = "not converted: "

// ConvertTerms returns a file of Erlang terms as lines of rabbitmq.conf, with a comment above each line that has no effect or is
// refused, and comments for what has no name there. Secrets are in it. err says what cannot be read, and which values no line can
// have; in their place is a line that is refused, so that nobody starts a node without them.
func ConvertTerms(f File) (string, error) {
	t := readTerms(f)
	var b strings.Builder
	comment := func(format string, args ...any) { b.WriteString("# " + oneLine(fmt.Sprintf(format, args...)) + "\n") }
	p := newParser(&Config{}) // the values are looked at, and thrown away
	*p.c = Default()
	for _, l := range t.lines {
		switch idle, err := p.set(l.key, l.value); {
		case err != nil:
			comment("refused: %v", err)
		case idle != "":
			comment("no effect: %s", idle)
		}
		text := Setting{Key: l.key, Value: l.value}.line()
		if key, value, err := split(text, nil); err != nil || key != l.key || value != l.value || strings.Contains(text, "\n") {
			t.failed = append(t.failed, &Error{f.Name, l.number, l.key, "rabbitmq.conf cannot have the value; write $(NAME) instead of it, and set the variable NAME in the node's environment"})
		} else {
			b.WriteString(text + "\n")
		}
	}
	for _, w := range t.warnings {
		comment("line %d: %s: %s", w.Line, w.Key, w.Text)
	}
	for _, err := range t.failed {
		b.WriteString(notConverted + strings.ReplaceAll(oneLine(err.Error()), "=", "?") + "\n")
	}
	return b.String(), errors.Join(t.failed...)
}

// oneLine is a text without what may end a line.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
