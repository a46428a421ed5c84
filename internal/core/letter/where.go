package letter

import (
	"regexp"
	"strconv"
	"strings"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/wire/amqp091"
)

// condition is one of the conditions "where": header.NAME=value and so on.
type condition struct {
	property string // its name, "" if it is a header
	header   string
	op       operator
	text     string
	number   float64
	re       *regexp.Regexp
	deaths   bool // the header is one of a dead letter, which no publisher has set
}

// properties are what property.NAME may be.
var properties = map[string]func(*amqp091.Props) (text []byte, number float64, numeric, there bool){
	"content_type":     textOf(amqp091.FlagContentType, func(p *amqp091.Props) []byte { return p.ContentType }),
	"content_encoding": textOf(amqp091.FlagContentEncoding, func(p *amqp091.Props) []byte { return p.ContentEncoding }),
	"correlation_id":   textOf(amqp091.FlagCorrelationID, func(p *amqp091.Props) []byte { return p.CorrelationID }),
	"reply_to":         textOf(amqp091.FlagReplyTo, func(p *amqp091.Props) []byte { return p.ReplyTo }),
	"expiration":       textOf(amqp091.FlagExpiration, func(p *amqp091.Props) []byte { return p.Expiration }),
	"message_id":       textOf(amqp091.FlagMessageID, func(p *amqp091.Props) []byte { return p.MessageID }),
	"type":             textOf(amqp091.FlagType, func(p *amqp091.Props) []byte { return p.Type }),
	"user_id":          textOf(amqp091.FlagUserID, func(p *amqp091.Props) []byte { return p.UserID }),
	"app_id":           textOf(amqp091.FlagAppID, func(p *amqp091.Props) []byte { return p.AppID }),
	"cluster_id":       textOf(amqp091.FlagClusterID, func(p *amqp091.Props) []byte { return p.ClusterID }),
	"delivery_mode":    numberOf(amqp091.FlagDeliveryMode, func(p *amqp091.Props) float64 { return float64(p.DeliveryMode) }),
	"priority":         numberOf(amqp091.FlagPriority, func(p *amqp091.Props) float64 { return float64(p.Priority) }),
	"timestamp":        numberOf(amqp091.FlagTimestamp, func(p *amqp091.Props) float64 { return float64(p.Timestamp) }),
}

func textOf(flag uint16, of func(*amqp091.Props) []byte) func(*amqp091.Props) ([]byte, float64, bool, bool) {
	return func(p *amqp091.Props) ([]byte, float64, bool, bool) { return of(p), 0, false, p.Has(flag) }
}

func numberOf(flag uint16, of func(*amqp091.Props) float64) func(*amqp091.Props) ([]byte, float64, bool, bool) {
	return func(p *amqp091.Props) ([]byte, float64, bool, bool) {
		n := of(p)
		return strconv.AppendFloat(nil, n, 'f', -1, 64), n, true, p.Has(flag)
	}
}

// parseCondition returns the rule that s breaks, "" if it breaks none.
func parseCondition(s string) (c condition, rule string) {
	const form = "is no condition; it must be header.NAME or property.NAME, alone or with one of = != ~ < <= > >= and a value"
	name, value := s, ""
	if at := strings.IndexAny(s, "=!~<>"); at >= 0 {
		name = s[:at]
		for _, o := range operators {
			if rest, ok := strings.CutPrefix(s[at:], o.text); ok {
				c.op, value = o.op, rest
				break
			}
		}
		if c.op == exists {
			return c, form
		}
	}
	kind, name, _ := strings.Cut(name, ".")
	switch {
	case name == "" || kind != "header" && kind != "property":
		return c, form
	case kind == "header":
		c.header, c.deaths = name, ofDeath(name)
	default:
		if c.property = name; properties[name] == nil {
			return c, "names no property; the properties are: content_type, content_encoding, correlation_id, reply_to, expiration, message_id, type, user_id, app_id, " +
				"cluster_id, delivery_mode, priority and timestamp"
		}
	}
	c.text = value
	switch c.op {
	case matches:
		c.re, rule = readExpression(value)
	case less, atMost, more, atLeast:
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return c, "compares with what is no number; <, <=, > and >= need one"
		}
		c.number = n
	}
	return c, rule
}

// ofDeath says whether a header is written by the broker when a message dies.
func ofDeath(name string) bool {
	for _, n := range deadletter.HeaderNames {
		if n == name {
			return true
		}
	}
	return name == deadletter.HeaderReplayedFrom
}

// hiddenBy says whether a mask hides the header that the condition looks at, or its name: whether it is there would tell the name.
func (c *condition) hiddenBy(m *Mask) bool {
	return m.HidesHeader(c.header) || m.Text(c.header) != c.header
}

func (c *condition) holds(l *Letter) bool {
	text, number, numeric, there := c.value(l)
	if !there || c.hiddenBy(l.mask) {
		return c.op == notEqual
	}
	if l.mask != nil {
		shown := l.mask.Text(string(text))
		if whole := strconv.FormatFloat(number, 'f', -1, 64); numeric && l.mask.Text(whole) != whole {
			shown = Hidden
		}
		if shown != string(text) {
			text, numeric = []byte(shown), false
		}
	}
	switch c.op {
	case exists:
		return true
	case equal:
		return string(text) == c.text
	case notEqual:
		return string(text) != c.text
	case matches:
		return c.re.Match(text[:min(len(text), maxLooked)])
	}
	if !numeric {
		n, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			return false
		}
		number = n
	}
	return (&compare{c.op, c.number}).holds(number)
}

// value finds the value without decoding other headers.
func (c *condition) value(l *Letter) (text []byte, number float64, numeric, there bool) {
	p := l.Props()
	if c.property != "" {
		return properties[c.property](p)
	}
	if c.deaths && !l.Parked {
		for _, f := range l.History.Headers() {
			if f.Key == c.header && len(f.Encoded) > 5 && f.Encoded[0] == 'S' {
				return f.Encoded[5:], 0, false, true
			} else if f.Key == c.header {
				return nil, 0, false, true // a list or an empty text
			}
		}
		return nil, 0, false, false
	}
	typ, value, ok := amqp091.HeaderField(p.Headers, c.header)
	for _, f := range convert.AnnotationHeaders(l.annotations()) {
		if f.Key == c.header {
			typ, value = convert.CutField(f.Encoded)
			ok = true
		}
	}
	if !ok {
		return nil, 0, false, false
	}
	switch typ {
	case 'S', 'x':
		return value, 0, false, true
	case 'F', 'A':
		return nil, 0, false, true // tables and lists only exist
	}
	v, err := amqp091.DecodeValue(typ, value)
	if err != nil {
		return nil, 0, false, true
	}
	if n, ok := amqp091.Int64(v); ok {
		return strconv.AppendInt(nil, n, 10), float64(n), true, true
	}
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(nil, v), 0, false, true
	case float32:
		return strconv.AppendFloat(nil, float64(v), 'g', -1, 32), float64(v), true, true
	case float64:
		return strconv.AppendFloat(nil, v, 'g', -1, 64), v, true, true
	case amqp091.Timestamp:
		return strconv.AppendUint(nil, uint64(v), 10), float64(v), true, true
	}
	return nil, 0, false, true
}
