package topology

import (
	"fmt"
	"maps"
	"slices"

	"bartleby.mq/internal/core/queue"
)

// The policy key dead-letter-breaker is an object of three whole numbers, all of which are needed.

// mostDeaths is the largest number of deaths that a breaker may wait for. leastWindow, in milliseconds, keeps small how often one
// may open and close, which is logged and told.
const mostDeaths, leastWindow = 1_000_000_000, 1000

// breakerFields are the fields of dead-letter-breaker, their smallest and largest values, and where they belong.
var breakerFields = map[string]struct {
	least, most int64
	of          func(*queue.Breaker) *int64
}{
	"deaths":  {1, mostDeaths, func(b *queue.Breaker) *int64 { return &b.Deaths }},
	"percent": {1, 100, func(b *queue.Breaker) *int64 { return &b.Percent }},
	"window":  {leastWindow, queue.MostWindow, func(b *queue.Breaker) *int64 { return &b.Window }},
}

// parseBreaker reads a value of dead-letter-breaker. fault says what is wrong with it, "" if nothing is.
func parseBreaker(v any) (b queue.Breaker, fault string) {
	object, ok := v.(map[string]any)
	if !ok {
		return b, "It must be an object with deaths, percent and window"
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if _, ok := breakerFields[name]; !ok {
			return b, fmt.Sprintf("It has no %q, only deaths, percent and window", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(breakerFields)) {
		f := breakerFields[name]
		value, there := object[name]
		n, whole := value.(int64)
		switch {
		case !there:
			return b, name + " is missing"
		case !whole || n < f.least || n > f.most:
			unit := ""
			if name == "window" {
				unit = " milliseconds"
			}
			return b, fmt.Sprintf("%s must be a whole number from %d to %d%s", name, f.least, f.most, unit)
		}
		*f.of(&b) = n
	}
	return b, ""
}

func isBreaker(v any) bool { return breakerFault(v) == "" }

func breakerFault(v any) string {
	_, fault := parseBreaker(v)
	return fault
}

// effectiveBreaker returns the breaker that the policy of a queue sets. In strict mode there is none, whatever was set before.
func effectiveBreaker(q *Queue) (b queue.Breaker) {
	if q.Strict || q.Policy == nil {
		return b
	}
	if v, ok := q.Policy.Definition["dead-letter-breaker"]; ok {
		b, _ = parseBreaker(v) // it was checked
	}
	return b
}
