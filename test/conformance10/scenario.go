package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// scenario is one file: what is done to the broker, step by step.
type scenario struct {
	Name    string `yaml:"name"`
	Purpose string `yaml:"purpose"`
	Bare    bool   `yaml:"bare"` // the steps make all connections themselves
	Steps   []step `yaml:"steps"`
	path    string
}

// step is one action; in the file, a map of one key, the kind, to the arguments.
type step struct {
	kind string
	text string // the arguments as the transcript shows them
	args map[string]*yaml.Node
}

func (s *step) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 {
		return fmt.Errorf("line %d: a step is a map of one key", n.Line)
	}
	s.kind = n.Content[0].Value
	k, ok := kinds[s.kind]
	if !ok {
		return fmt.Errorf("line %d: there is no step %q", n.Line, s.kind)
	}
	value := n.Content[1]
	s.text = s.kind + " " + compact(value)
	s.args = map[string]*yaml.Node{}
	main, rest, _ := strings.Cut(k.args, " ")
	switch {
	case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
		s.text = s.kind
	case value.Kind == yaml.MappingNode && tag(value) == "":
		known := append(strings.Fields(rest), main)
		for i := 0; i < len(value.Content); i += 2 {
			name := value.Content[i].Value
			if !slices.Contains(known, name) {
				return fmt.Errorf("line %d: the step %s has no argument %q", value.Content[i].Line, s.kind, name)
			}
			s.args[name] = value.Content[i+1]
		}
	default:
		s.args[main] = value
	}
	return nil
}

func load(path string) (*scenario, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &scenario{path: path}
	if err := yaml.Unmarshal(text, s); err != nil {
		return nil, err
	}
	if s.Name == "" || s.Purpose == "" || len(s.Steps) == 0 {
		return nil, errors.New("a scenario needs a name, a purpose and steps")
	}
	if want := strings.TrimSuffix(path, ".yaml"); !strings.HasSuffix(want, "/"+s.Name) && want != s.Name {
		return nil, fmt.Errorf("the scenario is called %s", s.Name)
	}
	return s, nil
}

func (s *scenario) golden() string { return strings.TrimSuffix(s.path, ".yaml") + ".golden" }

func (s *scenario) restarts() bool {
	return slices.ContainsFunc(s.Steps, func(st step) bool { return st.kind == "restart" })
}

// compact writes a node on one line.
func compact(n *yaml.Node) string {
	word := ""
	if t := tag(n); t != "" {
		word = "!" + t + " "
	}
	switch n.Kind {
	case yaml.MappingNode:
		parts := make([]string, 0, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			parts = append(parts, compact(n.Content[i])+": "+compact(n.Content[i+1]))
		}
		return word + "{" + strings.Join(parts, ", ") + "}"
	case yaml.SequenceNode:
		parts := make([]string, 0, len(n.Content))
		for _, c := range n.Content {
			parts = append(parts, compact(c))
		}
		return word + "[" + strings.Join(parts, ", ") + "]"
	case yaml.AliasNode:
		return compact(n.Alias)
	}
	if n.Value == "" && word != "" {
		return strings.TrimSpace(word)
	}
	unprintable := strings.ContainsFunc(n.Value, func(r rune) bool { return !unicode.IsPrint(r) })
	if n.Tag == "!!str" && (n.Value == "" || unprintable || strings.ContainsAny(n.Value, "\"'{}[],")) {
		return strconv.Quote(n.Value)
	}
	return word + n.Value
}

// plain turns a node into what encoding/json writes.
func plain(n *yaml.Node, expand func(string) string) (any, error) {
	switch n.Kind {
	case yaml.AliasNode:
		return plain(n.Alias, expand)
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			v, err := plain(n.Content[i+1], expand)
			if err != nil {
				return nil, err
			}
			m[n.Content[i].Value] = v
		}
		return m, nil
	case yaml.SequenceNode:
		list := []any{}
		for _, c := range n.Content {
			v, err := plain(c, expand)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	if n.Tag == "!!str" {
		return expand(n.Value), nil
	}
	var v any
	err := n.Decode(&v)
	return v, err
}
