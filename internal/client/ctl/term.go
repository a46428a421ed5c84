package ctl

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// term prints a JSON value as rabbitmqctl's tables show the corresponding Erlang term:
// lists in brackets, objects as maps.
func term(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case arguments:
		return v.term()
	case tags:
		return "[" + strings.Join(v, ", ") + "]"
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = innerTerm(e)
		}
		return "[" + strings.Join(parts, ",") + "]"
	case object:
		parts := make([]string, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, fmt.Sprintf("%q => %s", k, innerTerm(v[k])))
		}
		return "#{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v)
}

// void is the API's text for an argument without a value. A real text of these letters, which
// is unlikely, counts as void.
const void = "undefined"

// innerTerm prints a nested value: text in quotes, and the empty text as Erlang's empty
// list.
func innerTerm(v any) string {
	if s, ok := v.(string); ok {
		switch s {
		case "":
			return "[]"
		case void:
			return void
		}
		return fmt.Sprintf("%q", s)
	}
	if o, ok := v.(object); ok {
		return arguments(o).term()
	}
	return term(v)
}

// arguments prints the arguments of a queue, exchange, binding or consumer.
type arguments object

func argumentsOf(v any) arguments {
	o, _ := v.(object)
	return arguments(o)
}

func (a arguments) term() string {
	parts := make([]string, 0, len(a))
	for _, k := range slices.Sorted(maps.Keys(a)) {
		parts = append(parts, fmt.Sprintf("{%q,%s}", k, innerTerm(a[k])))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// tags prints the tags of a user.
type tags []string

func tagsOf(v any) tags {
	list := tags{}
	elements, _ := v.([]any)
	for _, e := range elements {
		list = append(list, sprint(e))
	}
	return list
}

// jsonForm is a value in the form of rabbitmqctl's JSON: arguments are lists of name, type
// and value.
func jsonForm(v any) any {
	a, ok := v.(arguments)
	if !ok {
		return v
	}
	list := make([][3]any, 0, len(a))
	for _, k := range slices.Sorted(maps.Keys(a)) {
		list = append(list, [3]any{k, typeName(a[k]), a[k]})
	}
	return list
}

// typeName guesses the type of an argument, which the API does not show.
func typeName(v any) string {
	switch v := v.(type) {
	case string:
		if v == void {
			return "void"
		}
		return "longstr"
	case bool:
		return "bool"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "double"
		}
		return "long"
	case []any:
		return "array"
	case object:
		return "table"
	}
	return "void"
}
