package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"bartleby.mq/internal/core/expression"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/erlterm"
)

// ApplyTo says to which objects a policy applies.
type ApplyTo string

// The values of apply-to.
const (
	ApplyToQueues        ApplyTo = "queues"
	ApplyToClassicQueues ApplyTo = "classic_queues"
	ApplyToQuorumQueues  ApplyTo = "quorum_queues"
	ApplyToStreams       ApplyTo = "streams"
	ApplyToExchanges     ApplyTo = "exchanges"
	ApplyToAll           ApplyTo = "all"
)

func (a ApplyTo) valid() bool {
	switch a {
	case ApplyToQueues, ApplyToClassicQueues, ApplyToQuorumQueues, ApplyToStreams, ApplyToExchanges, ApplyToAll:
		return true
	}
	return false
}

func (a ApplyTo) queue(t QueueType) bool {
	switch a {
	case ApplyToAll, ApplyToQueues:
		return true
	case ApplyToClassicQueues:
		return t == Classic
	case ApplyToQuorumQueues:
		return t == Quorum
	case ApplyToStreams:
		return t == Stream
	}
	return false
}

func (a ApplyTo) exchange() bool { return a == ApplyToAll || a == ApplyToExchanges }

// policyKey describes one key of a definition (DL-4.1, DL-4.2).
type policyKey struct {
	valid    func(v any) bool
	why      func(v any) string // what is wrong with a bad value, if complain does not say it; may be nil
	complain string             // follows "is not a valid " in the complaint about a bad value
	operator bool               // operator policies may set it
	ours     bool               // Bartleby's own, unknown in strict mode
	name     bool               // it is a name or a key: see message.CheckName
}

var policyKeys = map[string]policyKey{
	"alternate-exchange":            {valid: isString, name: true, complain: "alternate exchange name"},
	"consumer-disconnected-timeout": {valid: atLeast(0), complain: "consumer disconnected timeout"},
	"consumer-timeout":              {valid: atLeast(0), complain: "consumer timeout"},
	"dead-letter-breaker":           {valid: isBreaker, why: breakerFault, complain: "dead letter breaker", ours: true},
	"dead-letter-exchange":          {valid: isString, name: true, complain: "dead letter exchange name"},
	"dead-letter-routing-key":       {valid: isString, name: true, complain: "dead letter routing key"},
	"dead-letter-strategy":          {valid: isOneOf("at-most-once", "at-least-once"), complain: "dead letter strategy"},
	"delayed-retry-jitter":          {valid: isBetween(0, 1), complain: "delayed retry jitter. Must be a number from 0 to 1", operator: true, ours: true},
	"delayed-retry-max":             {valid: atLeast(1), complain: "delayed retry maximum delay. Must be a positive integer", operator: true},
	"delayed-retry-min":             {valid: atLeast(1), complain: "delayed retry minimum delay. Must be a positive integer", operator: true},
	"delayed-retry-multiplier":      {valid: isBetween(1, 1e9), complain: "delayed retry multiplier. Must be a number of at least 1", operator: true, ours: true},
	"delayed-retry-type":            {valid: isOneOf(retryTypes...), complain: "delayed retry type. Must be one of: " + strings.Join(retryTypes, ", "), operator: true},
	"delivery-limit":                {valid: isInteger, complain: "delivery limit", operator: true},
	"expires":                       {valid: atLeast(1), complain: "queue expiry", operator: true},
	"initial-cluster-size":          {valid: atLeast(0), complain: "cluster size"},
	"max-age":                       {valid: isMaxAge, complain: "max age"},
	"max-in-memory-bytes":           {valid: atLeast(0), complain: "maximum memory in bytes", operator: true},
	"max-in-memory-length":          {valid: atLeast(0), complain: "maximum memory in bytes", operator: true},
	"max-length":                    {valid: atLeast(0), complain: "maximum length", operator: true},
	"max-length-bytes":              {valid: atLeast(0), complain: "maximum length in bytes", operator: true},
	"message-ttl":                   {valid: atLeast(0), complain: "message TTL", operator: true},
	"overflow":                      {valid: isOneOf("drop-head", "reject-publish", "reject-publish-dlx"), complain: "overflow value", operator: true},
	"queue-leader-locator":          {valid: isOneOf(locators...), complain: "queue leader locator value"},
	"queue-master-locator":          {valid: isOneOf(locators...), complain: "master locator"},
	"queue-mode":                    {valid: isOneOf("default", "lazy"), complain: "queue-mode value"},
	"queue-version":                 {valid: isBetween(1, 2), complain: "queue-version value", operator: true},
	"stream-filter-size-bytes":      {valid: isBetween(16, 255), complain: "filter size. Valid range is 16-255"},
	"stream-max-segment-size-bytes": {valid: atLeast(0), complain: "segment size"},
	"target-group-size":             {valid: atLeast(1), complain: "qq target count value", operator: true},
}

var retryTypes = []string{"all", "failed", "returned", "disabled"}

func isString(v any) bool { _, ok := v.(string); return ok }

func isInteger(v any) bool { _, ok := v.(int64); return ok }

func atLeast(least int64) func(any) bool {
	return func(v any) bool { n, ok := v.(int64); return ok && n >= least }
}

func isBetween(low, high float64) func(any) bool {
	return func(v any) bool { f, ok := number(v); return ok && f >= low && f <= high }
}

func isOneOf(allowed ...string) func(any) bool {
	return func(v any) bool { s, ok := v.(string); return ok && slices.Contains(allowed, s) }
}

func isMaxAge(v any) bool { s, ok := v.(string); return ok && validMaxAge(s) }

// PolicyDecl is the declaration of a policy or operator policy.
type PolicyDecl struct {
	Name       string
	Pattern    string
	ApplyTo    ApplyTo // empty means all
	Priority   any     // int64, or another JSON value, which is refused; nil means 0
	Definition Definition
}

// check validates the declaration and compiles its pattern. All complaints are collected, as RabbitMQ does (DL-4.3).
func (p *PolicyDecl) check(operator, strict bool) (*expression.Name, error) {
	var complaints []string
	if err := message.CheckName("policy name", p.Name); err != nil {
		complaints = append(complaints, err.Error())
	}
	if p.Priority == nil {
		p.Priority = int64(0)
	}
	if _, ok := number(p.Priority); !ok {
		complaints = append(complaints, "priority should be a number, actually was "+erlterm.Format(p.Priority))
	}
	pattern, err := expression.CompileName(p.Pattern)
	if err != nil {
		complaints = append(complaints, patternComplaint(p.Pattern, err))
	}
	if p.ApplyTo == "" {
		p.ApplyTo = ApplyToAll
	}
	if !p.ApplyTo.valid() {
		complaints = append(complaints, fmt.Sprintf("apply-to '%s' unrecognised; should be one of: 'queues', 'classic_queues', "+
			" 'quorum_queues', 'streams', 'exchanges', or 'all'", p.ApplyTo))
	}
	if c := p.Definition.check(operator, strict); c != "" {
		complaints = append(complaints, c)
	}
	if len(complaints) > 0 {
		slices.Reverse(complaints) // RabbitMQ's order
		return nil, validationFailed(complaints...)
	}
	return pattern, nil
}

// check returns the first complaint about the values, in the order of their keys, then about relations between them,
// then about unknown keys; "" if there is none.
func (d Definition) check(operator, strict bool) string {
	if len(d) == 0 {
		return "no policy provided"
	}
	var unknown []erlterm.Pair
	for _, key := range slices.Sorted(maps.Keys(d)) {
		k, ok := policyKeys[key]
		if !ok || operator && !k.operator || strict && k.ours {
			unknown = append(unknown, erlterm.Pair{Key: key, Value: printable(d[key])})
			continue
		}
		if !k.valid(d[key]) {
			c := erlterm.Format(printable(d[key])) + " is not a valid " + k.complain
			if k.why != nil {
				c += ". " + k.why(d[key])
			}
			return c
		}
		if k.name {
			if err := message.CheckName(key, *d.text(key)); err != nil {
				return err.Error()
			}
		}
	}
	if c := d.checkDelayedRetry(); c != "" {
		return c
	}
	if unknown != nil {
		return erlterm.Format(unknown) + " are not recognised policy settings"
	}
	return ""
}

// checkDelayedRetry checks the relations between the three settings. REQUIRES: each is valid on its own.
func (d Definition) checkDelayedRetry() string {
	least, most := d.integer("delayed-retry-min"), d.integer("delayed-retry-max")
	if t := d.text("delayed-retry-type"); t != nil && *t != "disabled" && least == nil {
		return "delayed-retry-min is required when delayed-retry-type is " + *t
	}
	if least != nil && most != nil && *most < *least {
		return fmt.Sprintf("delayed-retry-max (%d) must not be smaller than delayed-retry-min (%d)", *most, *least)
	}
	return ""
}

// unsupportedKeys are the keys with which a policy does not apply to a queue type at all (DL-4.4, DL-4.5).
var unsupportedKeys = map[QueueType][]string{
	Classic: {
		"max-age", "stream-max-segment-size-bytes", "stream-filter-size-bytes", "initial-cluster-size", "delivery-limit",
		"dead-letter-strategy", "max-in-memory-length", "max-in-memory-bytes", "target-group-size",
	},
	Quorum: {
		"max-priority", "queue-mode", "queue-master-locator", "max-age", "stream-max-segment-size-bytes",
		"initial-cluster-size",
	},
	Stream: {
		"expires", "message-ttl", "dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy", "max-length",
		"max-in-memory-length", "max-in-memory-bytes", "max-priority", "overflow", "queue-mode", "delivery-limit",
		"target-group-size",
	},
}

// supports says whether the queue supports all keys of the definition.
func (q *Queue) supports(d Definition) bool {
	for _, key := range unsupportedKeys[q.Type] {
		if _, ok := d[key]; ok && !(key == "dead-letter-strategy" && q.Type == Classic && q.AtLeastOnce) {
			return false
		}
	}
	return true
}
