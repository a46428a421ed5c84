package letter

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/expression"
)

// QueryError is a filter that cannot be understood.
type QueryError struct {
	Filter string // its name
	Value  string
	Rule   string // what it must be
}

// Error names the filter and the rule.
func (e *QueryError) Error() string {
	value := e.Value
	if len(value) > 100 {
		value = Clean(value, 100) + "…"
	}
	return fmt.Sprintf("filter '%s': '%s' %s", e.Filter, value, e.Rule)
}

// Filters are the names of the filters of a query, as the API and the command line have them.
var Filters = []string{
	"group", "reason", "source", "exchange", "key", "class", "error", "older_than", "newer_than", "died", "size", "job", "message_id",
	"type", "user", "client", "body", "where",
}

// Bounds of a query.
const (
	maxConditions = 32
	maxExpression = 1 << 10 // bytes of a regular expression
	// maxLooked is how much of a value an expression looks at, in bytes. With expression.MaxSteps for all expressions of a
	// query, this bounds what a letter can cost: a third of a second at worst, and nobody looks at the clock meanwhile.
	maxLooked = 16 << 10
	maxValue  = 4 << 10 // bytes of any other value: whoever asks may keep the query
)

// Query selects letters: all filters that are set must hold. The zero value selects all.
type Query struct {
	Group GroupID // of VHost; 0: all

	vhost       string
	reason      deadletter.Reason
	source      *string
	exchange    *string
	key         *string
	class       *string
	err         *regexp.Regexp
	diedAfter   int64 // 0: all; milliseconds since 1970, exclusive
	diedBefore  int64
	times, size *compare
	job         *uint64
	messageID   *string
	typ         *string
	user        *string
	client      *string
	body        []byte
	where       []condition
	steps       int // of all expressions
}

// ParseQuery reads filters of a virtual host: names with values, of which only "where" may have several. now is
// milliseconds since 1970. An error is a *QueryError.
func ParseQuery(vhost string, filters map[string][]string, now int64) (q Query, err error) {
	q.vhost = vhost
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		values := filters[name]
		if !slices.Contains(Filters, name) {
			return q, &QueryError{name, strings.Join(values, " "), "is no filter; the filters are: " + strings.Join(Filters, ", ")}
		}
		if len(values) > 1 && name != "where" {
			return q, &QueryError{name, strings.Join(values, " "), "is more than one value; only where may be given several times"}
		}
		if len(values) > maxConditions {
			return q, &QueryError{name, strconv.Itoa(len(values)), fmt.Sprintf("conditions are too many; at most %d are allowed", maxConditions)}
		}
		for _, v := range values {
			if len(v) > maxValue {
				return q, &QueryError{name, v, fmt.Sprintf("is too long; a value has at most %d bytes", maxValue)}
			}
			if rule := q.set(name, v, now); rule != "" {
				return q, &QueryError{name, v, rule}
			}
			if q.steps > expression.MaxSteps {
				return q, &QueryError{name, v, fmt.Sprintf("is too much: the regular expressions of a search have at most %d steps together (a repetition counts as often as it may repeat)", expression.MaxSteps)}
			}
		}
	}
	return q, nil
}

// set returns the rule that the value breaks, "" if it breaks none.
func (q *Query) set(name, v string, now int64) (rule string) {
	var ok bool
	switch name {
	case "group":
		if q.Group, ok = ParseGroupID(v); !ok {
			return "is no group; a group id has the digits 0 to 9 and a to z, such as 1a2b3c"
		}
	case "reason":
		if q.reason, ok = deadletter.ParseReason(v); !ok {
			return "is no reason; it must be rejected, expired, maxlen or delivery_limit"
		}
	case "source":
		q.source = &v
	case "exchange":
		if v == "amq.default" {
			v = ""
		}
		q.exchange = &v
	case "key":
		q.key = &v
	case "class":
		q.class = &v
	case "type":
		q.typ = &v
	case "user":
		q.user = &v
	case "client":
		q.client = &v
	case "message_id":
		q.messageID = &v
	case "error":
		q.err, rule = readExpression(v)
		q.steps += expression.Steps(v)
	case "older_than", "newer_than":
		age, ok := ParseAge(v)
		if !ok {
			return "is no age; it must be such as 90s, 15m, 12h, 2d or 1d12h"
		}
		at := max(1, now-age.Milliseconds())
		if name == "older_than" {
			q.diedBefore = at
		} else {
			q.diedAfter = at
		}
	case "died":
		q.times, rule = parseCompare(v)
	case "size":
		q.size, rule = parseCompare(v)
	case "job":
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return "is no job; the id of a job is a number"
		}
		q.job = &n
	case "body":
		if v == "" {
			return "is empty; it must be a text to look for"
		}
		q.body = []byte(v)
	case "where":
		var c condition
		if c, rule = parseCondition(v); rule == "" {
			if c.re != nil {
				q.steps += expression.Steps(c.text)
			}
			q.where = append(q.where, c)
		}
	}
	return rule
}

func readExpression(v string) (*regexp.Regexp, string) {
	if len(v) > maxExpression {
		return nil, fmt.Sprintf("is too long; a regular expression has at most %d bytes", maxExpression)
	}
	re, err := expression.Compile(v)
	if err != nil {
		return nil, "is no regular expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	return re, ""
}

// ParseAge reads a span of time that may begin with days: 90s, 12h, 2d, 1d12h.
func ParseAge(s string) (time.Duration, bool) {
	const day = 24 * time.Hour
	var days uint64
	rest := s
	if number, after, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n > uint64(math.MaxInt64/day)-1 {
			return 0, false
		}
		if days, rest = n, after; rest == "" {
			rest = "0s"
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || d > math.MaxInt64-time.Duration(days)*day {
		return 0, false
	}
	return time.Duration(days)*day + d, true
}

// compare is a comparison with a number.
type compare struct {
	op operator
	n  float64
}

type operator uint8

const (
	exists operator = iota
	equal
	notEqual
	matches
	less
	atMost
	more
	atLeast
)

// operators are written so; a longer one goes before its beginning.
var operators = []struct {
	text string
	op   operator
}{{"!=", notEqual}, {"<=", atMost}, {">=", atLeast}, {"=", equal}, {"~", matches}, {"<", less}, {">", more}}

func parseCompare(s string) (*compare, string) {
	const rule = "is no comparison; it must be a number, or such as >=3, >3, <=3, <3, =3 or !=3"
	c := compare{op: equal}
	for _, o := range operators {
		if rest, ok := strings.CutPrefix(s, o.text); ok {
			c.op, s = o.op, rest
			break
		}
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || c.op == matches || math.IsNaN(n) {
		return nil, rule
	}
	c.n = n
	return &c, ""
}

func (c *compare) holds(n float64) bool {
	switch c.op {
	case equal:
		return n == c.n
	case notEqual:
		return n != c.n
	case less:
		return n < c.n
	case atMost:
		return n <= c.n
	case more:
		return n > c.n
	case atLeast:
		return n >= c.n
	}
	return false
}

// Match says whether the query selects the letter. What is cheap to know is looked at first.
func (q *Query) Match(l *Letter) bool {
	switch {
	case q.reason != 0 && l.Reason() != q.reason,
		q.source != nil && l.Source() != *q.source,
		q.diedBefore != 0 && l.Died > q.diedBefore,
		q.diedAfter != 0 && l.Died < q.diedAfter,
		q.times != nil && !q.times.holds(float64(l.TimesDied())),
		q.size != nil && !q.size.holds(float64(l.Record.BodySize())),
		q.job != nil && l.History.Job != *q.job,
		q.user != nil && l.mask.Text(l.History.Cause.User) != *q.user,
		q.client != nil && !q.isClient(l),
		(q.exchange != nil || q.key != nil) && !q.from(l),
		q.messageID != nil && l.MessageID() != *q.messageID,
		q.typ != nil && l.Type() != *q.typ,
		q.class != nil && !q.isClass(l.Cause().Class),
		q.err != nil && !q.err.MatchString(l.Cause().Error),
		q.body != nil && !l.contains(q.body):
		return false
	}
	for i := range q.where {
		if !q.where[i].holds(l) {
			return false
		}
	}
	if q.Group != 0 {
		k := l.Group()
		return k.ID(q.vhost) == q.Group
	}
	return true
}

// from says whether the letter was first published so.
func (q *Query) from(l *Letter) bool {
	exchange, keys := l.Origin()
	return (q.exchange == nil || exchange == *q.exchange) && (q.key == nil || slices.Contains(keys, *q.key))
}

// isClient takes what the client that rejected the letter last calls its connection, or its product, with the version or without.
// Behind the mask of the letter, it is compared with what is shown.
func (q *Query) isClient(l *Letter) bool {
	v, c := *q.client, &l.History.Cause
	product, version := l.mask.Text(c.Product), l.mask.Text(c.Version)
	return v == l.mask.Text(c.Name) || v == product || version != "" && v == product+" "+version
}

// Steps is how many places of all its expressions may be reached by the same byte of what they look at: what the query costs, see expression.Steps.
func (q *Query) Steps() int { return q.steps }

// isClass takes the whole name of a class, or its last part.
func (q *Query) isClass(class string) bool {
	return class == *q.class || strings.HasSuffix(class, "."+*q.class)
}

// Asks returns the filter that would tell what a mask hides, "" if there is none. All others are answered as letters are shown behind the mask.
func (q *Query) Asks(m *Mask) string {
	if q.body != nil && m.HidesBodies() {
		return "body"
	}
	for i := range q.where {
		if q.where[i].hiddenBy(m) {
			return "header." + q.where[i].header
		}
	}
	return ""
}

// contains says whether the body has these bytes; a body of AMQP 1.0 that is not one data section may have them as it is encoded, or as it is
// shown.
func (l *Letter) contains(b []byte) bool {
	body := l.Record.Body()
	if bytes.Contains(body, b) {
		return true
	}
	text, kind, _ := l.Text(WholeText(l.Record))
	return (kind != "" || len(text) != len(body)) && bytes.Contains(text, b)
}
