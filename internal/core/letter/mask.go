package letter

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/expression"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// Hidden stands for what a mask hides.
const Hidden = "•••"

// MaskRules say what people without the right to see it are not shown. The JSON is their form in the API and in the store.
type MaskRules struct {
	Headers  []string `json:"headers"`  // names of headers, at any depth; upper and lower case are the same
	Paths    []string `json:"paths"`    // of values in bodies that are JSON: $.card.number, $..iban, $.items[*].code, $['a b'][0]
	Patterns []string `json:"patterns"` // regular expressions: what they match, in any text
}

// Bounds of a mask.
const (
	maxMaskHeaders  = 100
	maxMaskPaths    = 100
	maxMaskPatterns = 20
	maxMaskText     = 255 // bytes of a name or a path
	maxMaskSteps    = 32  // of a path
	// MaxMasked is how long a body may be that a mask with paths or patterns looks into, in bytes. A longer one is hidden.
	MaxMasked = 1 << 20
	// maxMaskWork bounds what a mask may cost for one text or one body: a body's bytes times the steps of all patterns, and how often
	// a path was looked at. It takes half a second at worst. What would cost more is hidden. With patterns of 50 steps these are bodies of 300 KB.
	maxMaskWork = 16 << 20
	// maxMaskDepth is how deep JSON may be, and maxMaskNested how often a text in JSON may be JSON. What is deeper is hidden.
	maxMaskDepth, maxMaskNested = 256, 4
)

// Mask hides values. A nil Mask hides nothing. Any number of goroutines may use it.
//
// Where it cannot tell what a value is, it hides: a body that is no UTF-8, or too long; with paths, a body that is no JSON.
type Mask struct {
	rules    MaskRules
	headers  []string // lower case
	paths    [][]step
	patterns []*regexp.Regexp
	steps    int // of all patterns
}

// step is a part of a path.
type step struct {
	deep  bool // at any depth
	any   bool
	name  string
	index int // of an array; -1: it is a name, or any
}

// unmaskable are headers that are shown in many places under other names: routing keys, deaths, origins.
var unmaskable = slices.Concat([]string{"CC", "BCC"}, deadletter.HeaderNames[:], deadletter.OriginHeaders)

// NewMask returns the mask of rules, nil if they hide nothing. An error says which rule is wrong.
func NewMask(r MaskRules) (*Mask, error) {
	m := &Mask{rules: MaskRules{Headers: slices.Clone(r.Headers), Paths: slices.Clone(r.Paths), Patterns: slices.Clone(r.Patterns)}}
	for _, list := range []struct {
		name string
		of   []string
		most int
		size int
	}{{"headers", r.Headers, maxMaskHeaders, maxMaskText}, {"paths", r.Paths, maxMaskPaths, maxMaskText}, {"patterns", r.Patterns, maxMaskPatterns, maxExpression}} {
		if len(list.of) > list.most {
			return nil, fmt.Errorf("%s: %d are too many; at most %d are allowed", list.name, len(list.of), list.most)
		}
		for _, text := range list.of {
			if text == "" || len(text) > list.size || !utf8.ValidString(text) {
				return nil, fmt.Errorf("%s: '%s' must be a text of 1 to %d bytes", list.name, Clean(text, maxMaskText), list.size)
			}
		}
	}
	for _, name := range r.Headers {
		if slices.ContainsFunc(unmaskable, func(n string) bool { return strings.EqualFold(n, name) }) {
			return nil, fmt.Errorf("headers: '%s' cannot be masked, since what is in it is shown in many places; mask it by a pattern", name)
		}
		m.headers = append(m.headers, strings.ToLower(name))
	}
	for _, text := range r.Paths {
		path, ok := parsePath(text)
		if !ok {
			return nil, fmt.Errorf("paths: '%s' is no path; it must be such as $.card.number, $..iban, $.items[*].code or $['a b'][0]", text)
		}
		if len(path) > maxMaskSteps {
			return nil, fmt.Errorf("paths: '%s' has %d steps; at most %d are allowed", text, len(path), maxMaskSteps)
		}
		m.paths = append(m.paths, path)
	}
	for _, text := range r.Patterns {
		re, err := expression.Compile(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("patterns: '%s' is no regular expression: %s", text, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		case re.MatchString(""):
			return nil, fmt.Errorf("patterns: '%s' matches the empty text, so it would be everywhere", text)
		}
		m.patterns = append(m.patterns, re)
		if m.steps += expression.Steps(text); m.steps > expression.MaxSteps {
			return nil, fmt.Errorf("patterns: all have more than %d steps together (a repetition counts as often as it may repeat)", expression.MaxSteps)
		}
	}
	if len(m.headers)+len(m.paths)+len(m.patterns) == 0 {
		return nil, nil
	}
	return m, nil
}

// Rules are what NewMask was given.
func (m *Mask) Rules() MaskRules {
	r := MaskRules{Headers: []string{}, Paths: []string{}, Patterns: []string{}}
	if m != nil {
		r.Headers, r.Paths, r.Patterns = append(r.Headers, m.rules.Headers...), append(r.Paths, m.rules.Paths...), append(r.Patterns, m.rules.Patterns...)
	}
	return r
}

// parsePath reads a path: $, and then .name, ..name, .*, ..*, ['name'], [0] or [*].
func parsePath(s string) (path []step, ok bool) {
	if s, ok = strings.CutPrefix(s, "$"); !ok {
		return nil, false
	}
	for s != "" {
		at := step{index: -1}
		if rest, ok := strings.CutPrefix(s, ".."); ok {
			at.deep, s = true, rest
			if !strings.HasPrefix(s, "[") {
				s = "." + s
			}
		}
		switch {
		case strings.HasPrefix(s, ".*"):
			at.any, s = true, s[2:]
		case strings.HasPrefix(s, "."):
			end := strings.IndexAny(s[1:], ".[") + 1
			if end == 0 {
				end = len(s)
			}
			if at.name, s = s[1:end], s[end:]; at.name == "" {
				return nil, false
			}
		case strings.HasPrefix(s, "['"):
			end := strings.Index(s, "']")
			if end < 3 {
				return nil, false
			}
			at.name, s = s[2:end], s[end+2:]
		case strings.HasPrefix(s, "[*]"):
			at.any, s = true, s[3:]
		case strings.HasPrefix(s, "["):
			end := strings.IndexByte(s, ']')
			if end < 0 {
				return nil, false
			}
			n, err := strconv.ParseUint(s[1:end], 10, 31)
			if err != nil {
				return nil, false
			}
			at.index, s = int(n), s[end+1:]
		default:
			return nil, false
		}
		path = append(path, at)
	}
	return path, true
}

// HidesHeader says whether the value of a header is hidden.
func (m *Mask) HidesHeader(name string) bool {
	return m != nil && len(m.headers) > 0 && slices.Contains(m.headers, strings.ToLower(name))
}

// HidesBodies says whether something may be hidden in bodies.
func (m *Mask) HidesBodies() bool { return m != nil && len(m.paths)+len(m.patterns) > 0 }

// HidesText says whether something may be hidden in any text.
func (m *Mask) HidesText() bool { return m != nil && len(m.patterns) > 0 }

// Text hides what patterns match in a text. With patterns, a text that is no UTF-8 is hidden.
func (m *Mask) Text(s string) string {
	if m == nil || len(m.patterns) == 0 || s == "" {
		return s
	}
	if len(s)*m.steps > maxMaskWork || !utf8.ValidString(s) {
		return Hidden
	}
	// All are matched with the text as it was: one must not take away what another needs.
	var spans [][]int
	for _, re := range m.patterns {
		spans = append(spans, re.FindAllStringIndex(s, -1)...)
	}
	if spans == nil {
		return s
	}
	slices.SortFunc(spans, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	var out strings.Builder
	end := 0 // of what is written or hidden
	for _, span := range spans {
		if span[0] == span[1] {
			continue // an empty match, such as of ^
		}
		if span[0] >= end {
			out.WriteString(s[end:span[0]])
			out.WriteString(Hidden)
		}
		end = max(end, span[1])
	}
	out.WriteString(s[end:])
	return out.String()
}

// Texts is Text of each.
func (m *Mask) Texts(list []string) []string {
	if m == nil {
		return list
	}
	shown := make([]string, len(list))
	for i, s := range list {
		shown[i] = m.Text(s)
	}
	return shown
}

// Value hides what is in decoded headers: values by their names, and what patterns match in names, texts and numbers. It changes no value that
// it is given.
func (m *Mask) Value(v any) any {
	if m == nil {
		return v
	}
	switch v := v.(type) {
	case string:
		return m.Text(v)
	case map[string]any:
		shown := make(map[string]any, len(v))
		for name, value := range v {
			if m.HidesHeader(name) {
				value = Hidden
			}
			shown[m.Text(name)] = m.Value(value)
		}
		return shown
	case []any:
		shown := make([]any, len(v))
		for i := range v {
			shown[i] = m.Value(v[i])
		}
		return shown
	case []string:
		return m.Texts(v)
	case nil, bool:
		return v
	}
	if len(m.patterns) > 0 { // a number
		for _, text := range []string{fmt.Sprint(v), string(asJSON(v))} {
			if m.Text(text) != text {
				return Hidden
			}
		}
	}
	return v
}

// Body hides what is in a body, and says whether something was hidden.
func (m *Mask) Body(body []byte) (shown []byte, masked bool) {
	if !m.HidesBodies() || len(body) == 0 {
		return body, false
	}
	if len(body) > MaxMasked || !utf8.Valid(body) || bytes.IndexByte(body, 0) >= 0 {
		return []byte(Hidden), true
	}
	k := &marks{}
	if out, ok := m.json(body, 0, nil, k); ok {
		return out, !bytes.Equal(out, body)
	}
	if k.work > maxMaskWork || len(m.paths) > 0 || mayBeJSON(body) {
		return []byte(Hidden), true
	}
	text := m.Text(string(body))
	return []byte(text), text != string(body)
}

// Hides says whether something of a message is hidden.
func (m *Mask) Hides(rec message.Record) bool {
	if m == nil {
		return false
	}
	if _, masked := m.Body(rec.Body()); masked {
		return true
	}
	l, err := amqp091.DecodeProps(rec.Properties())
	if err != nil {
		return true // nobody can tell
	}
	for _, text := range []*string{l.ContentType, l.ContentEncoding, l.CorrelationID, l.ReplyTo, l.Expiration, l.MessageID, l.Type, l.UserID, l.AppID, l.ClusterID} {
		if text != nil && m.Text(*text) != *text {
			return true
		}
	}
	if rec.HasSections() && m.hidesUnseen(rec, l.Headers) {
		return true
	}
	form := topology.TableForm{Text: func(s string) string { return topology.Readable(m.Text(s)) }, Unreal: topology.HeadersForm.Unreal}
	return !reflect.DeepEqual(m.Value(form.Object(l.Headers)), any(topology.HeadersForm.Object(l.Headers))) || m.Text(string(rec.Exchange())) != string(rec.Exchange()) || m.Text(string(rec.Key())) != string(rec.Key())
}

// hidesUnseen says whether something is hidden of what clients of AMQP 0-9-1 do not see of a message of AMQP 1.0, because they have no such
// value, no room for it, or another of that name: an edit can take it out, or make room, and shows it then.
func (m *Mask) hidesUnseen(rec message.Record, headers amqp091.Table) (hides bool) {
	seen := make(map[string]any, len(headers))
	for i := range headers {
		seen[headers[i].Key] = headers[i].Value
	}
	convert.RangePairs(rec, func(key []byte, v *amqp10.Value) bool {
		name := string(key)
		if header, ok := seen[name]; ok && v.Size() <= convert.MaxHeaders {
			if value, ok := convert.Field(v); ok && reflect.DeepEqual(value, header) {
				return true
			}
		}
		switch v.Type() {
		case amqp10.TypeMap, amqp10.TypeList, amqp10.TypeArray, amqp10.TypeDescribed: // a name in it may be hidden
			hides = len(m.headers) > 0 && convert.Annotation(name) == ""
		}
		if hides = hides || m.HidesHeader(name) || m.Text(name) != name; !hides && len(m.patterns) > 0 {
			text := convert.ValueText(v, MaxMasked+1)
			hides = m.Document(text) != text
		}
		return !hides
	})
	return hides
}

// Document is Body for a text of which paths say nothing, such as a line of the audit: JSON or a text.
func (m *Mask) Document(text string) string {
	if m == nil || len(m.patterns) == 0 || text == "" {
		return text
	}
	patterns := Mask{patterns: m.patterns, steps: m.steps}
	shown, _ := patterns.Body([]byte(text))
	return string(shown)
}

// escaped finds a character that JSON writes in another way.
var escaped = regexp.MustCompile(`\\u[0-9a-fA-F]{4}`)

// mayBeJSON says whether a text that is no JSON may have been meant as such: then a pattern may miss what an escape spells.
func mayBeJSON(body []byte) bool {
	text := bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\uFEFF")), " \t\r\n\x1e")
	return len(text) > 0 && strings.IndexByte("{[\"", text[0]) >= 0 || escaped.Match(body)
}

// state is how far a path has matched.
type state struct{ path, step int }

// json masks one or more values in JSON; ok is false if it is none. nested is in how many texts of JSON it stands, and states where paths are.
func (m *Mask) json(text []byte, nested int, states []state, k *marks) (out []byte, ok bool) {
	if nested == 0 {
		for i := range m.paths {
			states = append(states, state{i, 0})
		}
	}
	j := masker{m: m, in: text, nested: nested, marks: k}
	j.space()
	if j.at == len(j.in) {
		return nil, false
	}
	for j.at < len(j.in) {
		if !j.value(states, m.whole(states)) {
			return nil, false
		}
		j.space()
	}
	return j.out, true
}

// whole says whether a path has matched as a whole.
func (m *Mask) whole(states []state) bool {
	return slices.ContainsFunc(states, func(s state) bool { return s.step == len(m.paths[s.path]) })
}

// marks are the states that were noted in a round, so that each is noted once: with .. in a path, a state can be come to in many ways.
// And they count what a body costs.
type marks struct {
	work  int        // see maxMaskWork
	seen  [][]uint64 // by path and step: the last round in which it was noted
	round uint64
}

// add appends a state, unless it was noted in this round.
func (k *marks) add(list []state, s state) []state {
	for len(k.seen) <= s.path {
		k.seen = append(k.seen, make([]uint64, maxMaskSteps+1))
	}
	if k.seen[s.path][s.step] == k.round {
		return list
	}
	k.seen[s.path][s.step] = k.round
	return append(list, s)
}

// child is where paths are in a member or an element.
func (m *Mask) child(states []state, name string, index int, k *marks) (next []state) {
	k.round++
	k.work += len(states)
	for _, s := range states {
		at := &m.paths[s.path][s.step]
		if at.any || index >= 0 && at.index == index || index < 0 && at.index < 0 && strings.EqualFold(at.name, name) {
			next = k.add(next, state{s.path, s.step + 1})
		}
		if at.deep {
			next = k.add(next, s)
		}
	}
	return next
}

// masker copies JSON, and leaves out what is hidden. What stays is as it was, byte for byte.
type masker struct {
	m      *Mask
	in     []byte
	at     int
	out    []byte
	depth  int
	nested int
	marks  *marks
}

func (j *masker) space() {
	for j.at < len(j.in) && strings.IndexByte(" \t\r\n", j.in[j.at]) >= 0 {
		j.put()
	}
}

func (j *masker) put() {
	j.out = append(j.out, j.in[j.at])
	j.at++
}

// take copies a character, and says whether it was there.
func (j *masker) take(c byte) bool {
	if j.at == len(j.in) || j.in[j.at] != c {
		return false
	}
	j.put()
	return true
}

// value copies a value; hide: none of it. It says whether there was one.
func (j *masker) value(states []state, hide bool) (ok bool) {
	if j.at == len(j.in) {
		return false
	}
	if j.marks.work > maxMaskWork {
		return false
	}
	begin := len(j.out)
	if hide {
		states = nil
	}
	switch c := j.in[j.at]; c {
	case '{', '[':
		if j.depth++; j.depth > maxMaskDepth {
			return false
		}
		ok = j.members(c == '{', states)
		j.depth--
	case '"':
		var text string
		if text, ok = j.text(); ok {
			j.string(begin, text, states)
		}
	default:
		ok = j.scalar(begin)
	}
	if hide {
		j.out = append(j.out[:begin], `"`+Hidden+`"`...)
	}
	return ok
}

// members copies an object or an array.
func (j *masker) members(named bool, states []state) bool {
	end := byte(']')
	if named {
		end = '}'
	}
	j.put()
	j.space()
	if j.take(end) {
		return true
	}
	for index := 0; ; index++ {
		var next []state
		if named {
			begin := len(j.out)
			name, ok := j.text()
			if !ok {
				return false
			}
			if shown := j.shown(name); shown != name {
				j.out = append(j.out[:begin], asJSON(shown)...)
			}
			if j.space(); !j.take(':') {
				return false
			}
			j.space()
			next = j.m.child(states, name, -1, j.marks)
		} else {
			next = j.m.child(states, "", index, j.marks)
		}
		if !j.value(next, j.m.whole(next)) {
			return false
		}
		j.space()
		if j.take(end) {
			return true
		}
		if !j.take(',') {
			return false
		}
		j.space()
	}
}

// shown is Mask.Text, counted. Beyond what a body may cost nothing is shown of it.
func (j *masker) shown(s string) string {
	if j.marks.work += len(s) * j.m.steps; j.marks.work > maxMaskWork {
		return Hidden
	}
	return j.m.Text(s)
}

// text copies a text in quotation marks, and returns what it spells.
func (j *masker) text() (text string, ok bool) {
	begin := j.at
	if !j.take('"') {
		return "", false
	}
	for j.at < len(j.in) && j.in[j.at] != '"' {
		if j.in[j.at] == '\\' {
			j.put()
		}
		if j.at < len(j.in) {
			j.put()
		}
	}
	if !j.take('"') || json.Unmarshal(j.in[begin:j.at], &text) != nil {
		return "", false
	}
	return text, true
}

// string replaces a text that was copied from begin on by what is shown of it. JSON in it counts as if it stood there by itself.
func (j *masker) string(begin int, text string, states []state) {
	shown := text
	if inner := strings.TrimLeft(text, " \t\r\n"); inner != "" && (inner[0] == '{' || inner[0] == '[' || inner[0] == '"') {
		if j.nested == maxMaskNested {
			shown = Hidden
		} else if out, ok := j.m.json([]byte(text), j.nested+1, states, j.marks); ok {
			shown = string(out)
		} else if len(states) > 0 && inner[0] != '"' || escaped.MatchString(text) {
			shown = Hidden // it may be JSON that somebody else reads
		}
	} else if escaped.MatchString(text) {
		shown = Hidden
	}
	if shown = j.shown(shown); shown != text {
		j.out = append(j.out[:begin], asJSON(shown)...)
	}
}

// scalar copies a number, true, false or null.
func (j *masker) scalar(begin int) bool {
	from := j.at
	for j.at < len(j.in) && strings.IndexByte(" \t\r\n,:]}[{\"", j.in[j.at]) < 0 {
		j.put()
	}
	token := string(j.in[from:j.at])
	if token == "" || !json.Valid([]byte(token)) {
		return false
	}
	if j.shown(token) != token {
		j.out = append(j.out[:begin], `"`+Hidden+`"`...)
	}
	return true
}

// asJSON writes a text or a number as JSON.
func asJSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // these can always be written
	return bytes.TrimRight(b.Bytes(), "\n")
}
