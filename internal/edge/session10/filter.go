package session10

import (
	"regexp"
	"slices"
	"strings"

	"bartleby.mq/internal/wire/amqp10"
)

// RabbitMQ reads the filters of a source, says of those that it understands that they are in place, and then delivers whatever
// is in a classic or quorum queue: only its streams filter. In strict mode we say the same. Otherwise we say that none is in place.

// Descriptors of filters, and the key that one in SQL must have.
const (
	propertiesFilter            = "amqp:properties-filter"
	codePropertiesFilter        = 0x173
	applicationPropertiesFilter = "amqp:application-properties-filter"
	codeApplicationProperties   = 0x174
	sqlFilter                   = "amqp:sql-filter"
	codeSQLFilter               = 0x120
	sqlFilterKey                = "sql-filter"
)

// understood are the filters of a map that RabbitMQ understands: one in SQL, or one for each of two sections of a message. Of
// several that exclude each other the last ones count.
func understood(filter amqp10.Value) amqp10.Value {
	var keys, values []amqp10.Value
	items := filter.Items()
	for k, ok := items.Next(); ok && len(keys) < maxFilters; k, ok = items.Next() {
		v, _ := items.Next()
		keys, values = append(keys, k), append(values, v)
	}
	var kept []int
	taken := map[string]bool{}
	for i := len(keys) - 1; i >= 0; i-- {
		key, _ := keys[i].Symbol()
		kind := filterKind(string(key), values[i])
		if kind == "" || taken[kind] || taken[sqlFilter] || kind == sqlFilter && len(taken) > 0 {
			continue
		}
		taken[kind] = true
		kept = append(kept, i)
	}
	slices.Reverse(kept)
	b, start := amqp10.BeginMap(nil)
	for _, i := range kept {
		b = values[i].Append(keys[i].Append(b))
	}
	v, _, _ := amqp10.ReadValue(amqp10.EndCompound(b, start, 2*len(kept)))
	return v
}

// maxFilters is how many filters of a source are looked at.
const maxFilters = 64

// filterKind is the name of a filter's descriptor, "" unless the filter can be read.
func filterKind(key string, v amqp10.Value) string {
	if v.Type() != amqp10.TypeDescribed {
		return ""
	}
	is := func(name string, code uint64) bool {
		if s, ok := v.DescriptorValue().Symbol(); ok {
			return string(s) == name
		}
		n, ok := v.DescriptorValue().Uint64()
		return ok && n == code
	}
	inner := v.Underlying()
	switch {
	case key == sqlFilterKey:
		if s, ok := inner.Text(); ok && is(sqlFilter, codeSQLFilter) && isSQL(string(s)) {
			return sqlFilter
		}
	case inner.Type() != amqp10.TypeMap:
	case is(propertiesFilter, codePropertiesFilter) && every(inner, isPropertyFilter):
		return propertiesFilter
	case is(applicationPropertiesFilter, codeApplicationProperties) && every(inner, func(k, _ amqp10.Value) bool { return k.Type() == amqp10.TypeString }):
		return applicationPropertiesFilter
	}
	return ""
}

// every says whether f is true of all entries of a map.
func every(m amqp10.Value, f func(k, v amqp10.Value) bool) bool {
	items := m.Items()
	for k, ok := items.Next(); ok; k, ok = items.Next() {
		v, _ := items.Next()
		if !f(k, v) {
			return false
		}
	}
	return true
}

// propertyTypes are the types that values of a filter of properties must have.
var propertyTypes = map[string][]amqp10.Type{
	"message-id":     {amqp10.TypeUlong, amqp10.TypeUUID, amqp10.TypeBinary, amqp10.TypeString},
	"correlation-id": {amqp10.TypeUlong, amqp10.TypeUUID, amqp10.TypeBinary, amqp10.TypeString},
	"user-id":        {amqp10.TypeBinary}, "to": {amqp10.TypeString}, "subject": {amqp10.TypeString}, "reply-to": {amqp10.TypeString},
	"content-type": {amqp10.TypeSymbol}, "content-encoding": {amqp10.TypeSymbol}, "absolute-expiry-time": {amqp10.TypeTimestamp},
	"creation-time": {amqp10.TypeTimestamp}, "group-id": {amqp10.TypeString}, "group-sequence": {amqp10.TypeUint}, "reply-to-group-id": {amqp10.TypeString},
}

func isPropertyFilter(k, v amqp10.Value) bool {
	name, ok := k.Symbol()
	return ok && slices.Contains(propertyTypes[string(name)], v.Type())
}

// sqlToken is a word of a filter in SQL: white space, or one of the others.
var sqlToken = regexp.MustCompile(`^(?:([ \t\f\n\r]+)|('(?:[^']|'')*'|"(?:[^"]|"")*")|(0x(?:[0-9A-F]{2})+|[0-9]+(?:\.[0-9]+(?:E[+-]?[0-9]+)?)?)|([a-zA-Z][a-zA-Z_-]*\.[a-zA-Z][a-zA-Z0-9_]*)|(\[(?:[^\[\]]|\[\[|\]\])*\])|([a-zA-Z][a-zA-Z0-9_]*)|(<>|!=|>=|<=|[=<>])|([+\-*/%(),]))`)

// Groups of sqlToken.
const (
	sqlSpace = iota + 1
	sqlString
	sqlNumber
	sqlSection
	sqlDelimited
	sqlWord
	sqlComparison
	sqlSign
)

// sqlKeywords are words that are no names.
var sqlKeywords = []string{"AND", "OR", "NOT", "LIKE", "IN", "IS", "NULL", "ESCAPE", "TRUE", "FALSE", "EXISTS", "NAN", "INF", "LOWER", "UPPER", "LEFT", "RIGHT", "SUBSTRING", "UTC", "DATE"}

const (
	maxSQL      = 4096 // bytes
	maxSQLWords = 200  // also how deep parentheses may lie in each other
)

// isSQL says whether a filter is an expression in the SQL that RabbitMQ reads.
func isSQL(text string) bool {
	if len(text) > maxSQL {
		return false
	}
	var p sqlReader
	for len(text) > 0 {
		at := sqlToken.FindStringSubmatchIndex(text)
		if at == nil {
			return false
		}
		group := sqlSpace
		for at[2*group] < 0 {
			group++
		}
		word := text[:at[1]]
		text = text[at[1]:]
		if group == sqlSpace {
			continue
		}
		kind, ok := sqlKind(group, word)
		if p.words = append(p.words, kind); !ok || len(p.words) > maxSQLWords {
			return false
		}
		p.texts = append(p.texts, word)
	}
	return p.condition() && p.at == len(p.words)
}

// sqlKind is what a word is for the grammar: itself, or "text", "literal", "name" or "compares".
func sqlKind(group int, word string) (kind string, ok bool) {
	switch group {
	case sqlString:
		return "text", true
	case sqlNumber:
		return "literal", true
	case sqlSection:
		return "name", sqlField(word)
	case sqlDelimited:
		return "name", len(word) > 2
	case sqlComparison:
		return "compares", true
	case sqlWord:
		switch {
		case word == "TRUE" || word == "FALSE":
			return "literal", true
		case !slices.Contains(sqlKeywords, strings.ToUpper(word)):
			return "name", true
		}
		return word, slices.Contains(sqlKeywords[:8], word) || word == "UTC"
	}
	return word, true
}

// sqlField says whether there is such a field of a message.
func sqlField(name string) bool {
	section, field, _ := strings.Cut(name, ".")
	switch section {
	case "header", "h":
		return field == "priority"
	case "properties", "p":
		return propertyTypes[strings.ReplaceAll(field, "_", "-")] != nil && !strings.Contains(field, "-")
	}
	return section == "application_properties" || section == "a"
}

// sqlReader reads the grammar, whose rules are its methods: each reads as far as it goes, and says whether it is there.
type sqlReader struct {
	words, texts []string
	at           int
}

func (p *sqlReader) is(kinds ...string) bool {
	if p.at < len(p.words) && slices.Contains(kinds, p.words[p.at]) {
		p.at++
		return true
	}
	return false
}

func (p *sqlReader) condition() bool {
	for {
		for p.is("NOT") {
		}
		if !p.comparison() {
			return false
		}
		if !p.is("AND", "OR") {
			return true
		}
	}
}

func (p *sqlReader) comparison() bool {
	begin := p.at
	if !p.sum() {
		return false
	}
	name := p.at == begin+1 && p.words[begin] == "name"
	if p.is("compares") {
		return p.sum()
	}
	if p.is("IS") {
		p.is("NOT")
		return name && p.is("NULL")
	}
	negated := p.is("NOT")
	switch {
	case p.is("LIKE"):
		if !p.is("text") {
			return false
		}
		return !p.is("ESCAPE") || p.is("text") && len([]rune(p.texts[p.at-1])) == len("'x'")
	case p.is("IN"):
		for open := p.is("("); open; open = p.is(",") {
			if !p.sum() {
				return false
			}
		}
		return p.is(")")
	}
	return !negated
}

func (p *sqlReader) sum() bool {
	for {
		p.is("+", "-")
		switch {
		case p.is("text", "literal", "name"):
		case p.is("UTC"):
			if !p.is("(") || !p.is(")") {
				return false
			}
		case p.is("("):
			if !p.condition() || !p.is(")") {
				return false
			}
		default:
			return false
		}
		if !p.is("+", "-", "*", "/", "%") {
			return true
		}
	}
}
