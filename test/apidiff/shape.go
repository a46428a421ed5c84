package apidiff

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// shape is what an answer looks like: the types met at each path, as
// ".queue_totals.messages" or "[].name". Lists are one path for all elements.
type shape map[string]map[string]bool

// shapeOf walks a JSON text. node is the node's name, which stands as <node> in
// keys; only elements of the outermost list that chosen accepts are looked at.
func shapeOf(text []byte, node string, chosen func(any) bool) (shape, error) {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	if list, ok := v.([]any); ok {
		v = slices.DeleteFunc(list, func(e any) bool { return !chosen(e) })
	}
	s := shape{}
	s.walk("", v, node)
	return s, nil
}

func (s shape) walk(path string, v any, node string) {
	s.note(path, TypeOf(v))
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			s.walk(path+"."+strings.ReplaceAll(k, node, "<node>"), v[k], node)
		}
	case []any:
		for _, e := range v {
			s.walk(path+"[]", e, node)
		}
	}
}

func (s shape) note(path, kind string) {
	if s[path] == nil {
		s[path] = map[string]bool{}
	}
	s[path][kind] = true
}

// TypeOf is the JSON type of a decoded value, in JSON's words.
func TypeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "list"
	}
	return "object"
}

// lines are the paths with their types, sorted.
func (s shape) lines() []string {
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(s)) {
		lines = append(lines, path+" "+strings.Join(slices.Sorted(maps.Keys(s[path])), "|"))
	}
	return lines
}
