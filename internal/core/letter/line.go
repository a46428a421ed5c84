package letter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// Line is one message in an export: all that its record and its history say, in JSON that a person can read and a program can
// write. ParseLine is the reverse of AppendLine: the properties, the body and the history are equal to the byte.
type Line struct {
	// Where it lay. An import does not need them.
	ID    string
	VHost string
	Queue string

	Exchange   string // where it was first published
	Key        string
	BCC        []byte            // its BCC keys, as in a record
	Properties []byte            // raw, with headers
	Sections   *message.Sections // nil for a message of AMQP 0-9-1
	Body       []byte
	History    []byte // stored form; nil: it has none. Sent, Draft and Note are not kept: they are of the place where it lay
}

// text is a string in JSON: {"base64": …} if it is not UTF-8.
type text string

// MarshalJSON implements json.Marshaler.
func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return plain(string(t))
	}
	return plain(map[string][]byte{"base64": []byte(t)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var v struct {
			Base64 []byte `json:"base64"`
		}
		err := json.Unmarshal(b, &v)
		*t = text(v.Base64)
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// plain is JSON in which <, > and & stand for themselves.
func plain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func texts(list []string) []text {
	out := make([]text, len(list))
	for i, s := range list {
		out[i] = text(s)
	}
	return out
}

func plainTexts(list []text) []string {
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// lineJSON is the form of a line.
type lineJSON struct {
	ID           string          `json:"id,omitempty"`
	VHost        text            `json:"vhost,omitempty"`
	Queue        text            `json:"queue,omitempty"`
	Exchange     text            `json:"exchange"`
	Key          text            `json:"routing_key"`
	BCC          json.RawMessage `json:"bcc,omitempty"` // a list of text
	Properties   propertiesJSON  `json:"properties"`
	Headers      json.RawMessage `json:"headers,omitempty"` // a topology.TypedTable; absent: there is none, which differs from an empty one
	Sections     *sectionsJSON   `json:"amqp10,omitempty"`
	Body         string          `json:"body"`
	BodyEncoding string          `json:"body_encoding"`
	History      json.RawMessage `json:"history,omitempty"` // a historyJSON
}

// sectionsJSON are what a message of AMQP 1.0 has around its body, as base64.
type sectionsJSON struct {
	Head []byte `json:"head"`
	Tail []byte `json:"tail,omitempty"`
}

// propertiesJSON are the properties but the headers.
type propertiesJSON struct {
	ContentType     *string `json:"content_type,omitempty"`
	ContentEncoding *string `json:"content_encoding,omitempty"`
	DeliveryMode    *uint8  `json:"delivery_mode,omitempty"`
	Priority        *uint8  `json:"priority,omitempty"`
	CorrelationID   *string `json:"correlation_id,omitempty"`
	ReplyTo         *string `json:"reply_to,omitempty"`
	Expiration      *string `json:"expiration,omitempty"`
	MessageID       *string `json:"message_id,omitempty"`
	Timestamp       *uint64 `json:"timestamp,omitempty"`
	Type            *string `json:"type,omitempty"`
	UserID          *string `json:"user_id,omitempty"`
	AppID           *string `json:"app_id,omitempty"`
	ClusterID       *string `json:"cluster_id,omitempty"`
}

type deathJSON struct {
	Queue      text   `json:"queue"`
	Reason     string `json:"reason"`
	Count      uint64 `json:"count"`
	First      int64  `json:"first_ms"`
	Last       int64  `json:"last_ms"`
	Exchange   text   `json:"exchange"`
	Keys       []text `json:"routing_keys"`
	Expiration *int64 `json:"expiration_ms"`
}

type historyJSON struct {
	Deaths       []deathJSON `json:"deaths"` // the last one first
	First        int         `json:"first"`  // index of the very first death
	Exchange     text        `json:"exchange"`
	Keys         []text      `json:"routing_keys"`
	KeysReplaced bool        `json:"keys_replaced,omitempty"`
	StripCC      bool        `json:"strip_cc,omitempty"`
	Delayed      bool        `json:"delayed,omitempty"`
	Profile      text        `json:"profile,omitempty"`
	LimitReason  text        `json:"limit_reason,omitempty"`
	LastExchange text        `json:"last_exchange,omitempty"`
	Cause        causeJSON   `json:"rejected_by"`
	ReplayedFrom text        `json:"replayed_from,omitempty"`
	Job          uint64      `json:"job,omitempty,string"`
	Replays      uint64      `json:"replays,omitempty"`
	Earlier      []deathJSON `json:"earlier,omitempty"`
	Annotations  []byte      `json:"annotations,omitempty"` // as stored: a map of AMQP 1.0
	From         text        `json:"from,omitempty"`
	EditedFrom   text        `json:"edited_from,omitempty"`
	Lost         string      `json:"lost,omitempty"` // an outcome
}

type causeJSON struct {
	ConsumerTag text `json:"consumer_tag,omitempty"`
	Connection  text `json:"connection,omitempty"`
	User        text `json:"user,omitempty"`
	Error       text `json:"error,omitempty"`

	Name          text   `json:"connection_name,omitempty"`
	Product       text   `json:"product,omitempty"`
	Version       text   `json:"version,omitempty"`
	Class         text   `json:"error_class,omitempty"`
	Detail        text   `json:"detail,omitempty"`
	DeliveryCount uint32 `json:"delivery_count,omitempty"`
}

func showWhy(c *deadletter.Cause) causeJSON {
	return causeJSON{
		text(c.ConsumerTag), text(c.Connection), text(c.User), text(c.Error), text(c.Name), text(c.Product), text(c.Version), text(c.Class), text(c.Detail), c.DeliveryCount,
	}
}

func (j *causeJSON) cause() deadletter.Cause {
	return deadletter.Cause{
		ConsumerTag: string(j.ConsumerTag), Connection: string(j.Connection), User: string(j.User), Error: string(j.Error), Name: string(j.Name), Product: string(j.Product),
		Version: string(j.Version), Class: string(j.Class), Detail: string(j.Detail), DeliveryCount: j.DeliveryCount,
	}
}

// AppendLine appends the line with its end. An error means that the message's own bytes make no sense.
func AppendLine(b []byte, l *Line) ([]byte, error) {
	props, err := amqp091.DecodeProps(l.Properties)
	if err != nil {
		return nil, err
	}
	j := lineJSON{ID: l.ID, VHost: text(l.VHost), Queue: text(l.Queue), Exchange: text(l.Exchange), Key: text(l.Key), Properties: showProps(&props)}
	var bcc []text
	for keys := l.BCC; len(keys) > 0; keys = keys[1+int(keys[0]):] {
		bcc = append(bcc, text(keys[1:1+int(keys[0])]))
	}
	if len(bcc) > 0 {
		if j.BCC, err = plain(bcc); err != nil {
			return nil, err
		}
	}
	if props.Headers != nil {
		if j.Headers, err = plain(topology.TypedTable(props.Headers)); err != nil {
			return nil, err
		}
	}
	if s := l.Sections; s != nil {
		j.Sections = &sectionsJSON{s.Head, s.Tail}
	}
	if j.Body, j.BodyEncoding = string(l.Body), "text"; !isText(l.Body) {
		j.Body, j.BodyEncoding = base64.StdEncoding.EncodeToString(l.Body), "base64"
	}
	if l.History != nil {
		h, err := deadletter.Parse(l.History)
		if err != nil {
			return nil, err
		}
		if j.History, err = plain(showHistory(&h)); err != nil {
			return nil, err
		}
	}
	line, err := plain(&j)
	return append(append(b, line...), '\n'), err
}

// isText says whether a body is written as text: where that is UTF-8, and not much longer than base64.
func isText(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	escaped := 0
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' {
			escaped++
		}
	}
	return escaped <= len(b)/16
}

func showProps(l *amqp091.PropertyList) (j propertiesJSON) {
	for to, from := range map[**string]*string{
		&j.ContentType: l.ContentType, &j.ContentEncoding: l.ContentEncoding, &j.CorrelationID: l.CorrelationID, &j.ReplyTo: l.ReplyTo, &j.Expiration: l.Expiration,
		&j.MessageID: l.MessageID, &j.Type: l.Type, &j.UserID: l.UserID, &j.AppID: l.AppID, &j.ClusterID: l.ClusterID,
	} {
		*to = from
	}
	j.DeliveryMode, j.Priority, j.Timestamp = l.DeliveryMode, l.Priority, l.Timestamp
	return j
}

func (j *propertiesJSON) list() (l amqp091.PropertyList, err error) {
	for to, from := range map[**string]*string{
		&l.ContentType: j.ContentType, &l.ContentEncoding: j.ContentEncoding, &l.CorrelationID: j.CorrelationID, &l.ReplyTo: j.ReplyTo, &l.Expiration: j.Expiration,
		&l.MessageID: j.MessageID, &l.Type: j.Type, &l.UserID: j.UserID, &l.AppID: j.AppID, &l.ClusterID: j.ClusterID,
	} {
		if from != nil && len(*from) > math.MaxUint8 {
			return l, fmt.Errorf("a property of %d bytes, the limit is %d", len(*from), math.MaxUint8)
		}
		*to = from
	}
	l.DeliveryMode, l.Priority, l.Timestamp = j.DeliveryMode, j.Priority, j.Timestamp
	return l, nil
}

func showDeaths(list []deadletter.Death) (out []deathJSON) {
	for i := range list {
		d := &list[i]
		j := deathJSON{text(d.Queue), d.Reason.String(), d.Count, d.First, d.Last, text(d.Exchange), texts(d.Keys), nil}
		if d.Expiration >= 0 {
			j.Expiration = &d.Expiration
		}
		out = append(out, j)
	}
	return out
}

func readDeaths(list []deathJSON) (out []deadletter.Death, err error) {
	for i := range list {
		j := &list[i]
		d := deadletter.Death{Queue: string(j.Queue), Count: j.Count, First: j.First, Last: j.Last, Exchange: string(j.Exchange), Keys: plainTexts(j.Keys), Expiration: -1}
		for r := deadletter.Reason(1); r.Valid(); r++ {
			if r.String() == j.Reason {
				d.Reason = r
			}
		}
		switch {
		case d.Reason == 0:
			return nil, fmt.Errorf("history: reason '%.100s' is none", j.Reason)
		case d.Count == 0 || d.First < 0 || d.Last < d.First:
			return nil, errors.New("history: a death needs a count and times in order")
		case d.Count > maxTimes || d.Last > lastMoment:
			return nil, fmt.Errorf("history: a count is %d at most, and a time %d", uint64(maxTimes), int64(lastMoment))
		case len(d.Queue) > message.MaxName || len(d.Exchange) > message.MaxName || !fit(d.Keys):
			return nil, errors.New("history: a name is too long")
		}
		if j.Expiration != nil {
			if d.Expiration = *j.Expiration; d.Expiration < 0 {
				return nil, errors.New("history: expiration_ms is negative")
			}
		}
		out = append(out, d)
	}
	return out, nil
}

func fit(names []string) bool {
	for _, n := range names {
		if len(n) > message.MaxName {
			return false
		}
	}
	return true
}

func showHistory(h *deadletter.History) *historyJSON {
	j := &historyJSON{
		Deaths: showDeaths(h.Deaths), First: h.First, Exchange: text(h.Exchange), Keys: texts(h.Keys), KeysReplaced: h.KeysReplaced, StripCC: h.StripCC, Delayed: h.Delayed,
		Profile: text(h.Profile), LimitReason: text(h.LimitReason), LastExchange: text(h.LastExchange),
		Cause:        showWhy(&h.Cause),
		ReplayedFrom: text(h.ReplayedFrom), Job: h.Job, Replays: h.Replays, Earlier: showDeaths(h.Earlier), Annotations: []byte(h.Annotations), From: text(h.From), EditedFrom: text(h.EditedFrom),
	}
	if h.Lost != deadletter.Routed {
		j.Lost = h.Lost.String()
	}
	return j
}

// What a history in a line may count to, so that sums do not overflow, and the last moment that it may name: catalogues have seconds in 32 bits.
const (
	maxTimes   = 1 << 32
	lastMoment = math.MaxUint32 * 1000
)

// maxHistory is how many bytes the stored form of an imported history may have.
const maxHistory = 1 << 20

func (j *historyJSON) stored() ([]byte, error) {
	h := deadletter.History{
		First: j.First, Exchange: string(j.Exchange), Keys: plainTexts(j.Keys), KeysReplaced: j.KeysReplaced, StripCC: j.StripCC, Delayed: j.Delayed,
		Profile: deadletter.Profile(j.Profile), LimitReason: string(j.LimitReason), LastExchange: string(j.LastExchange),
		Cause:        j.Cause.cause(),
		ReplayedFrom: string(j.ReplayedFrom),
		Annotations:  string(j.Annotations),
		Marks:        deadletter.Marks{Job: j.Job, Replays: j.Replays, From: string(j.From), EditedFrom: string(j.EditedFrom), Imported: true},
	}
	if j.Replays > maxTimes {
		return nil, fmt.Errorf("history: replays are %d at most", uint64(maxTimes))
	}
	if _, known := deadletter.ParseProfile(string(j.Profile)); !known && j.Profile != "" {
		return nil, fmt.Errorf("history: profile '%.100s' is none", j.Profile)
	}
	if j.Lost != "" {
		var known bool
		if h.Lost, known = deadletter.ParseLost(j.Lost); !known {
			return nil, fmt.Errorf("history: lost '%.100s' is no outcome that leads to the lost and found", j.Lost)
		}
	}
	var err error
	if h.Deaths, err = readDeaths(j.Deaths); err != nil {
		return nil, err
	}
	if h.Earlier, err = readDeaths(j.Earlier); err != nil {
		return nil, err
	}
	for _, name := range []string{h.Exchange, h.LastExchange, h.ReplayedFrom, h.From} {
		if len(name) > message.MaxName {
			return nil, errors.New("history: a name is too long")
		}
	}
	if !fit(h.Keys) {
		return nil, errors.New("history: a name is too long")
	}
	if h.First < 0 {
		return nil, errors.New("history: first is no index of a death")
	}
	if err := convert.CheckAnnotations(h.Annotations); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	b := h.Append(nil)
	if _, err := deadletter.Parse(b); err != nil {
		return nil, errors.New("history: first, or the number of earlier deaths, is out of range")
	}
	if len(b) > maxHistory {
		return nil, fmt.Errorf("history: %d bytes, the limit is %d", len(b), maxHistory)
	}
	return b, nil
}

// maxLinePart is how many bytes headers and history of a line may have: decoded they take many times as much memory.
const maxLinePart = 4 << 20

// ParseLine reads a line, with or without its end. An error says what is wrong with it.
func ParseLine(line []byte) (l Line, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var j lineJSON
	if err := d.Decode(&j); err != nil {
		return l, fmt.Errorf("it is no letter: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return l, errors.New("it is no letter: something follows")
	}
	l = Line{ID: j.ID, VHost: string(j.VHost), Queue: string(j.Queue), Exchange: string(j.Exchange), Key: string(j.Key)}
	var bcc []text
	if len(j.BCC) > maxLinePart {
		return l, fmt.Errorf("bcc: it has %d bytes, the limit is %d", len(j.BCC), maxLinePart)
	}
	if len(j.BCC) > 0 {
		if err := json.Unmarshal(j.BCC, &bcc); err != nil {
			return l, fmt.Errorf("bcc: %w", err)
		}
	}
	for _, k := range bcc {
		if len(k) > message.MaxName {
			return l, errors.New("bcc: a key is too long")
		}
		l.BCC = append(append(l.BCC, byte(len(k))), k...)
	}
	props, err := j.Properties.list()
	if err != nil {
		return l, err
	}
	if len(j.Headers) > maxLinePart || len(j.History) > maxLinePart {
		return l, fmt.Errorf("headers, history: they have %d and %d bytes, the limit of each is %d", len(j.Headers), len(j.History), maxLinePart)
	}
	if len(j.Headers) > 0 {
		if err := json.Unmarshal(j.Headers, (*topology.TypedTable)(&props.Headers)); err != nil {
			return l, fmt.Errorf("headers: %w", err)
		}
		if props.Headers.CheckDepth() != nil {
			return l, fmt.Errorf("headers: nested more than %d deep", amqp091.MaxDepth)
		}
	}
	l.Properties = amqp091.AppendPropsFrom(nil, props)
	if _, err := amqp091.ParseProps(l.Properties); err != nil {
		return l, err // text that is not UTF-8, where AMQP has none
	}
	if s := j.Sections; s != nil {
		l.Sections = &message.Sections{Head: s.Head, Tail: s.Tail}
	}
	switch j.BodyEncoding {
	case "text":
		l.Body = []byte(j.Body)
	case "base64":
		if l.Body, err = base64.StdEncoding.DecodeString(j.Body); err != nil {
			return l, fmt.Errorf("body: it is no base64: %w", err)
		}
	default:
		return l, fmt.Errorf("body_encoding '%.100s' must be text or base64", j.BodyEncoding)
	}
	if l.Sections != nil {
		if err := convert.CheckSections(l.Sections, l.Body); err != nil {
			return l, fmt.Errorf("amqp10: with the body it is no message of AMQP 1.0: %w", err)
		}
	}
	if len(j.History) > 0 && string(j.History) != "null" {
		var h historyJSON
		strict := json.NewDecoder(bytes.NewReader(j.History))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&h); err != nil {
			return l, fmt.Errorf("history: %w", err)
		}
		l.History, err = h.stored()
	}
	return l, err
}
