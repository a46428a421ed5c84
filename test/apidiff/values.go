package apidiff

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// variable are the paths whose values differ from run to run: only their types are shown.
var variable = []string{
	"*_details.*", "*garbage_collection*", "*reductions*", "*_oct", "*recv_cnt", "*.publishers", "*consumer_capacity", "*consumer_utilisation", "*send_cnt", "*connected_at", "*port", "*.peer_port", "*.pid", "*memory*", "*_at", "*since*",
	"*.rate", "*_age", "*timestamp*", "*process*", "*open_files*", "*.reductions*", "*ram*", "*backing_queue_status*", "*.storage_version", "*leader", "*recoverable_slaves*", "*message_bytes*",
}

// valueLines are a JSON text's paths with their values, one a line, sorted: ".name = "q"". Elements of lists are numbered in the
// order that the node has, consumers by their tags. Objects of other users are left out.
func valueLines(text []byte, mask *strings.Replacer) (lines []string) {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		if len(text) == 0 {
			return nil
		}
		return []string{"text"}
	}
	if list, ok := v.([]any); ok {
		v = slices.DeleteFunc(list, func(e any) bool { return !ours10(e) })
	}
	walkValues("", v, mask, &lines)
	slices.Sort(lines)
	return lines
}

func ours10(e any) bool {
	object, ok := e.(map[string]any)
	if !ok {
		return true
	}
	v, ok := object["vhost"]
	return !ok || v == vhost10
}

// tagOf is a consumer's tag, "" for other values: RabbitMQ lists consumers in any order.
func tagOf(e any) string {
	object, _ := e.(map[string]any)
	tag, _ := object["consumer_tag"].(string)
	return tag
}

func walkValues(at string, v any, mask *strings.Replacer, lines *[]string) {
	isVariable := slices.ContainsFunc(variable, func(pattern string) bool {
		return matches(pattern, at)
	})
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			break
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			walkValues(at+"."+mask.Replace(k), v[k], mask, lines)
		}
		return
	case []any:
		if len(v) == 0 {
			break
		}
		slices.SortStableFunc(v, func(a, b any) int { return strings.Compare(tagOf(a), tagOf(b)) })
		for i, e := range v {
			walkValues(fmt.Sprintf("%s[%d]", at, i), e, mask, lines)
		}
		return
	}
	if isVariable {
		*lines = append(*lines, at+" "+TypeOf(v))
		return
	}
	text := fmt.Sprint(v)
	if s, ok := v.(string); ok {
		text = strconv.Quote(s)
	}
	*lines = append(*lines, at+" = "+mask.Replace(text))
}
