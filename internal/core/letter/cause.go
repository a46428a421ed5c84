package letter

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/wire/amqp091"
)

// Cause is why a message died, in the words of its consumer. All fields are UTF-8 and may be empty.
type Cause struct {
	Class  string // of the error, such as java.lang.IllegalStateException
	Error  string // its text
	Detail string // mostly where it happened: a stack trace, the innermost cause first
	// From says where the cause was found: "settle" if the consumer told it to the broker, or the family of the headers.
	From string
}

// Names are names of headers that the operator has configured. They go before those that are known.
type Names struct{ Class, Error, Detail, Type []string }

// Bounds of what is taken from headers, in bytes. A client can write anything into them.
const (
	MaxClass  = 255
	MaxError  = 4 << 10
	MaxDetail = 64 << 10
	// MaxSaid is MaxError of what a consumer tells the broker: it stays in memory with the history, where a detail lies on disk.
	MaxSaid = 1 << 10
)

// field is what a header tells.
type field uint8

const (
	nothing field = iota
	fieldClass
	fieldError
	fieldDetail
	fieldType
	fieldSource // the queue in which the consumer failed
	fields
)

// family is whose headers they are. A lower number goes first.
type family uint8

const (
	configured family = iota
	spring
	massTransit
	nServiceBus
	kafkaConnect
	celery
	cloudEvents
	families
)

var familyNames = [families]string{"configured", "spring", "masstransit", "nservicebus", "kafka-connect", "celery", "cloudevents"}

// known says what a well-known header tells. Most headers are none of them: the first letters decide.
func known(key []byte) (family, field) {
	if len(key) < 4 {
		return 0, nothing
	}
	switch string(key) {
	case "x-exception-message":
		return spring, fieldError
	case "x-exception-stacktrace":
		return spring, fieldDetail
	case "x-exception-fqcn":
		return spring, fieldClass
	case "__TypeId__":
		return spring, fieldType
	case "MT-Fault-ExceptionType":
		return massTransit, fieldClass
	case "MT-Fault-Message":
		return massTransit, fieldError
	case "MT-Fault-StackTrace":
		return massTransit, fieldDetail
	case "MT-MessageType", "MT-Fault-MessageType":
		return massTransit, fieldType
	case "MT-Fault-InputAddress":
		return massTransit, fieldSource
	case "NServiceBus.ExceptionInfo.ExceptionType":
		return nServiceBus, fieldClass
	case "NServiceBus.ExceptionInfo.Message":
		return nServiceBus, fieldError
	case "NServiceBus.ExceptionInfo.StackTrace":
		return nServiceBus, fieldDetail
	case "NServiceBus.EnclosedMessageTypes":
		return nServiceBus, fieldType
	case "NServiceBus.FailedQ":
		return nServiceBus, fieldSource
	case "__connect.errors.exception.class.name":
		return kafkaConnect, fieldClass
	case "__connect.errors.exception.message":
		return kafkaConnect, fieldError
	case "__connect.errors.exception.stacktrace":
		return kafkaConnect, fieldDetail
	case "__connect.errors.topic":
		return kafkaConnect, fieldSource
	case "exception_type", "exc_type":
		return celery, fieldClass
	case "exception_message", "exc_message":
		return celery, fieldError
	case "traceback":
		return celery, fieldDetail
	case "task":
		return celery, fieldType
	case "cloudEvents:type", "cloudEvents_type", "ce-type":
		return cloudEvents, fieldType
	}
	return 0, nothing
}

// told has the values of headers that tell of a cause. They alias the record.
type told struct {
	value [fields][]byte
	from  [fields]family
	set   [fields]bool
}

func (t *told) note(of family, what field, value []byte) {
	if !t.set[what] || of < t.from[what] {
		t.value[what], t.from[what], t.set[what] = value, of, true
	}
}

// parked says whether the headers tell of a failure, so that the message was parked by a consumer.
func (t *told) parked() bool { return t.set[fieldClass] || t.set[fieldError] }

// read looks at the annotations that outcomes have merged into the message, and at all headers once, behind a mask, which may be nil. If
// annotations tell of a failure, that is later than what headers tell of one.
func (t *told) read(annotations string, headers []byte, names *Names, mask *Mask) {
	for _, f := range convert.AnnotationHeaders(annotations) {
		if typ, value := convert.CutField(f.Encoded); typ == 'S' {
			t.readHeader([]byte(f.Key), value, names, mask, false)
		}
	}
	failed := t.parked() || t.set[fieldDetail]
	amqp091.RangeHeaders(headers, func(key []byte, typ byte, value []byte) bool {
		if typ == 'S' || typ == 'x' {
			t.readHeader(key, value, names, mask, failed)
		}
		return true
	})
}

// readHeader notes what a header tells. failed: not of a failure.
func (t *told) readHeader(key, value []byte, names *Names, mask *Mask, failed bool) {
	of, what := known(key)
	if names != nil {
		if own := names.field(string(key)); own != nothing {
			of, what = configured, own
		}
	}
	if what == nothing || failed && (what == fieldClass || what == fieldError || what == fieldDetail) {
		return
	}
	if mask.HidesHeader(string(key)) {
		value = []byte(Hidden)
	} else if mask != nil {
		value = []byte(mask.Text(string(value)))
	}
	t.note(of, what, value)
}

func (n *Names) field(key string) field {
	for what, list := range [...][]string{fieldClass: n.Class, fieldError: n.Error, fieldDetail: n.Detail, fieldType: n.Type} {
		for _, name := range list {
			if name == key {
				return field(what)
			}
		}
	}
	return nothing
}

// settled is Cause.From of what a consumer told the broker when it settled the delivery.
const settled = "settle"

// saidOf says whether the consumer has told the broker of the last death.
func saidOf(c *deadletter.Cause) bool { return c.Class != "" || c.Error != "" || c.Detail != "" }

// cause makes the cause of what the consumer told the broker or, if it told nothing, of what the headers tell. They are not
// mixed: the headers may be of an earlier failure.
func (t *told) cause(said *deadletter.Cause) (c Cause) {
	if saidOf(said) {
		c = Cause{Class: Clean(said.Class, MaxClass), Error: Clean(said.Error, MaxError), From: settled}
		if c.Class == "" && said.Detail != "" {
			c.Class = classOfTrace([]byte(said.Detail[:min(len(said.Detail), MaxDetail)]))
		}
		if c.Class == "" {
			c.Class, c.Error = splitClass(c.Error)
		}
		return c
	}
	if t.set[fieldError] {
		c.Error, c.From = Clean(string(cut(t.value[fieldError], MaxError)), MaxError), familyNames[t.from[fieldError]]
	}
	if t.set[fieldClass] {
		c.Class = Clean(string(cut(t.value[fieldClass], MaxClass)), MaxClass)
		if c.From == "" {
			c.From = familyNames[t.from[fieldClass]]
		}
	}
	if t.set[fieldDetail] && c.Class == "" {
		c.Class = classOfTrace(cut(t.value[fieldDetail], MaxDetail))
	}
	if c.Class == "" {
		c.Class, c.Error = splitClass(c.Error)
	}
	return c
}

// detail is the stack trace, the innermost cause first: its "Caused by" is what went wrong, and the lines before it say
// which layers were told.
func (t *told) detail(said *deadletter.Cause) string {
	trace := said.Detail
	if !saidOf(said) {
		trace = string(cut(t.value[fieldDetail], MaxDetail))
	}
	trace = Clean(trace, MaxDetail)
	if at := strings.LastIndex(trace, causedBy); at > 0 {
		return trace[at+1:] + "\n\n" + strings.TrimRight(trace[:at], "\r\n")
	}
	return trace
}

const causedBy = "\nCaused by: "

// wrapper is the exception in which Spring wraps whatever a listener throws.
const wrapper = "ListenerExecutionFailedException"

// classOfTrace is the class in the first line of a stack trace: all failures of Spring's listeners have the same one there,
// so of these it is the class of the first cause.
func classOfTrace(trace []byte) string {
	class, _ := splitClass(firstLine(trace))
	if strings.HasSuffix(class, wrapper) {
		if at := bytes.Index(trace, []byte(causedBy)); at >= 0 {
			if inner, _ := splitClass(firstLine(trace[at+len(causedBy):])); inner != "" {
				return inner
			}
		}
	}
	return Clean(class, MaxClass)
}

// firstLine is as much of the first line as can be a class.
func firstLine(s []byte) string {
	s = cut(bytes.TrimLeft(cut(s, 4*MaxClass), " \r\n\t"), MaxClass+1)
	if i := bytes.IndexAny(s, "\r\n"); i >= 0 {
		s = s[:i]
	}
	return string(s)
}

// splitClass splits "java.lang.IllegalStateException: text" and "ValueError: text". The class is empty if the text does
// not begin with one.
func splitClass(text string) (class, rest string) {
	end := 0
	dot := false
	for ; end < len(text) && end < MaxClass; end++ {
		c := text[end]
		if c == '.' && end > 0 {
			dot = true
		} else if !isWord(c) && c != '$' || end == 0 && isDigit(c) {
			break
		}
	}
	if end == 0 || end < len(text) && text[end] != ':' {
		return "", text
	}
	word := text[:end]
	if dot = dot && !strings.HasSuffix(word, "."); !dot && !named(word) || dot && !named(word) && end == len(text) {
		return "", text
	}
	return word, strings.TrimLeft(text[min(len(text), end+1):], " \t")
}

// named says whether a word is called as classes of errors are.
func named(word string) bool {
	for _, end := range [...]string{"Exception", "Error", "Failure", "Fault", "Timeout"} {
		if strings.HasSuffix(word, end) {
			return true
		}
	}
	return false
}

// messageType is the type that the property or a header names, or else the subject.
func (t *told) messageType(property, subject []byte) string {
	s := property
	if len(s) == 0 {
		s = t.value[fieldType]
	}
	if len(s) == 0 {
		s, property = subject, subject
	}
	text := string(cut(s, MaxClass))
	if i := strings.IndexAny(text, ",;"); i > 0 && len(property) == 0 {
		text = text[:i] // NServiceBus lists types with their assemblies
	}
	return Clean(text, MaxClass)
}

// source is the queue in which the consumer failed, if a header names it: the last part of an address.
func (t *told) source() string {
	text := string(cut(t.value[fieldSource], 1<<10))
	if t.from[fieldSource] == massTransit {
		text, _, _ = strings.Cut(text, "?")
		text = text[strings.LastIndexByte(text, '/')+1:]
	}
	if t.from[fieldSource] == nServiceBus {
		text, _, _ = strings.Cut(text, "@")
	}
	return Clean(text, MaxClass)
}

func cut(b []byte, most int) []byte { return b[:min(len(b), most)] }

// Clean makes a text UTF-8 of at most most bytes.
func Clean(s string, most int) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	for i := min(len(s), most); i < len(s); i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s
}
