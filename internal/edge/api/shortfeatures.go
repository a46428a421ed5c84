package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"bartleby.mq/internal/core/topology"
)

// feature is a word of the column "Features" of the management page: what a queue or an
// exchange was declared with, and the policies that apply to it. RabbitMQ computes it in
// the browser; here the API has it too, as "features".
type feature struct {
	Code  string `json:"code"`  // as the column shows it: "TTL", or a policy's name
	Title string `json:"title"` // as it is explained: "x-message-ttl: 5000"
}

// shortForm is the code of a property or an argument.
type shortForm struct{ key, code string }

// propertyForms and argumentForms have what RabbitMQ 4.3.6 has a code for, in the order in
// which it shows them. Of its list "messages delayed" (DM) is missing: nothing sets it there.
var (
	propertyForms = []shortForm{
		{"durable", "D"},
		{"auto-delete", "AD"},
		{"internal", "I"},
		{"exclusive", "Excl"},
		{"delayed retry", "DR"},
	}
	argumentForms = []shortForm{
		{"alternate-exchange", "AE"},
		{"x-message-ttl", "TTL"},
		{"x-expires", "Exp"},
		{"x-max-length", "Lim"},
		{"x-max-length-bytes", "Lim B"},
		{"x-delivery-limit", "DlL"},
		{"x-overflow", "Ovfl"},
		{"x-dead-letter-exchange", "DLX"},
		{"x-dead-letter-routing-key", "DLK"},
		{"x-queue-master-locator", "ML"},
		{"x-queue-leader-locator", "LL"},
		{"x-max-priority", "Pri"},
		{"x-single-active-consumer", "SAC"},
		{"x-consumer-disconnected-timeout", "CDT"},
		{"x-delayed-retry-type", "DRT"},
		{"x-delayed-retry-min", "DRm"},
		{"x-delayed-retry-max", "DRM"},
	}
)

// features are those of an object with these properties, arguments and policies. An
// argument is shown as it was given, whether a policy says otherwise or not; what a
// policy sets is behind its name. Arguments without a code are together "Args".
func features(properties, arguments map[string]any, policies ...namedPolicy) []feature {
	shown := []feature{}
	other := maps.Clone(arguments)
	for _, of := range []struct {
		forms  []shortForm
		values map[string]any
	}{{propertyForms, properties}, {argumentForms, arguments}} {
		for _, f := range of.forms {
			if value, given := of.values[f.key]; given && value != false {
				shown = append(shown, feature{f.code, f.key + ": " + flatValue(value)})
			}
		}
	}
	for _, f := range argumentForms {
		delete(other, f.key)
	}
	if len(other) > 0 {
		shown = append(shown, feature{"Args", flatTable(other)})
	}
	for _, p := range policies {
		if p.policy != nil {
			shown = append(shown, feature{p.policy.Name, p.kind + ": " + p.policy.Name})
		}
	}
	return shown
}

// namedPolicy is a policy that applies, or nil, and what it is called in titles.
type namedPolicy struct {
	kind   string
	policy *topology.Policy
}

// flatTable is a table on one line, sorted by key.
func flatTable(table map[string]any) string {
	parts := make([]string, 0, len(table))
	for _, key := range slices.Sorted(maps.Keys(table)) {
		parts = append(parts, key+": "+flatValue(table[key]))
	}
	return strings.Join(parts, ", ")
}

// flatValue is a value of plain JSON on one line: (a: 1) is a table, [1,2] a list.
func flatValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "(" + flatTable(v) + ")"
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = flatValue(e)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return fmt.Sprint(v)
}
