package topology

import (
	"fmt"
	"maps"
	"slices"

	"bartleby.mq/internal/core/queue"
)

// The policy key dead-letter-breaker is an object of three whole numbers, all of which are needed.

// mostDeaths is the largest number of deaths that a breaker may wait for.
const mostDeaths = 1_000_000_000

// breakerFields are the fields of dead-letter-breaker, their largest values, and where they belong. The smallest value is 1.
var breakerFields = map[string]struct {
	most int64
	of   func(*queue.Breaker) *int64
}{
	"deaths":  {mostDeaths, func(b *queue.Breaker) *int64 { return &b.Deaths }},
	"percent": {100, func(b *queue.Breaker) *int64 { return &b.Percent }},
	"window":  {queue.MostWindow, func(b *queue.Breaker) *int64 { return &b.Window }},
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
		case !whole || n < 1 || n > f.most:
			unit := ""
			if name == "window" {
				unit = " milliseconds"
			}
			return b, fmt.Sprintf("%s must be a whole number from 1 to %d%s", name, f.most, unit)
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
