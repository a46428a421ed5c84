package letter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/amqp10"
)

// A message that came by AMQP 1.0 is edited as such: a header is an annotation or an application property, a property a field of the
// section properties. A section that has nothing of the edit stays byte for byte. What clients of AMQP 0-9-1 see is converted anew
// from the edited message, and must differ in what was edited and in nothing else: otherwise the edit is refused.

// edit10 is a message under edit. Sections that are not touched are copied.
type edit10 struct {
	before amqp091.PropertyList // for clients of AMQP 0-9-1
	header convert.Header
	body   []byte // its sections, as encoded
	kind   amqp10.Descriptor
	footer []byte

	annotations, application pairs
	properties               []([]byte) // fields, as encoded
	propertiesRaw            []byte     // the section as it was
	propertiesDirty          bool
}

// pairs is a section that is a map.
type pairs struct {
	raw   []byte // the section as it was
	list  []pair
	many  bool // more than maxPairs: list has not all
	dirty bool
}

// maxPairs is how many pairs a section may have that an edit changes: those of one message of 16 MiB would take a gigabyte.
const maxPairs = 1 << 13

type pair struct {
	key, value amqp10.Value
}

func (p *pairs) read(section amqp10.Value) {
	if section.IsNull() {
		return
	}
	p.raw = section.Append(nil)
	items := section.ItemsBelow()
	var k, v amqp10.Value
	for !p.many && items.Read(&k) && items.Read(&v) {
		p.list, p.many = append(p.list, pair{k, v}), len(p.list) == maxPairs
	}
}

// name is a key as headers have it, where it lies.
func (p *pair) name() []byte {
	if s, ok := p.key.Symbol(); ok {
		return s
	}
	s, _ := p.key.Text()
	return s
}

// text is a copy of the name.
func (p *pair) text() string { return string(p.name()) }

func (p *pairs) find(key string) *amqp10.Value {
	for i := range p.list {
		if string(p.list[i].name()) == key {
			return &p.list[i].value
		}
	}
	return nil
}

// set gives the first pair of the key the value, or appends one.
func (p *pairs) set(key, value amqp10.Value) {
	p.dirty = true
	added := pair{key, value}
	text := added.text()
	for i := range p.list {
		if string(p.list[i].name()) == text {
			p.list[i].value = value
			return
		}
	}
	p.list = append(p.list, added)
}

func (p *pairs) remove(key string) {
	if p.find(key) != nil {
		p.dirty = true
		p.list = slices.DeleteFunc(p.list, func(p pair) bool { return string(p.name()) == key })
	}
}

func (p *pairs) append(dst []byte, section amqp10.Descriptor) []byte {
	if !p.dirty {
		return append(dst, p.raw...)
	}
	if len(p.list) == 0 {
		return dst
	}
	b, start := amqp10.BeginMap(amqp10.AppendDescriptor(dst, section))
	for i := range p.list {
		b = p.list[i].value.Append(p.list[i].key.Append(b))
	}
	return amqp10.EndCompound(b, start, 2*len(p.list))
}

// apply10 is Apply for a message that came by AMQP 1.0.
func (e *Edit) apply10(rec message.Record) (d Edited, changes []Change, err error) {
	var x edit10
	if err := x.read(rec); err != nil {
		return d, nil, err
	}
	if err := e.body10(&x, rec, &changes); err != nil {
		return d, nil, err
	}
	if (x.annotations.many || x.application.many) && len(e.Properties)+len(e.Headers) > 0 {
		return d, nil, fmt.Errorf("edit: the letter has more than %d annotations or application properties: only its body can be changed", maxPairs)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Properties)) {
		if err := x.property(name, e.Properties[name]); err != nil {
			return d, nil, err
		}
	}
	removed := map[string]any{} // of what clients of AMQP 0-9-1 do not see
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		if err := x.setHeader(name, e.Headers[name], removed); err != nil {
			return d, nil, err
		}
	}
	var in convert.Incoming
	if err := convert.Again(&in, &x.header, x.whole()); err != nil {
		return d, nil, fmt.Errorf("edit: %w", err)
	}
	after, err := amqp091.DecodeProps(in.Raw)
	if err != nil {
		return d, nil, err
	}
	seen, err := e.differ(&x.before, &after, x.kind != x.kindOf(rec), removed)
	if err != nil {
		return d, nil, err
	}
	if changes = append(changes, seen...); len(changes) == 0 {
		return d, nil, errNothing
	}
	return Edited{Properties: in.Raw, Sections: &in.Sections, Body: in.Body}, changes, nil
}

func (x *edit10) read(rec message.Record) (err error) {
	if x.before, err = amqp091.DecodeProps(rec.Properties()); err != nil {
		return err
	}
	var whole []byte
	x.header, whole = convert.Whole(rec)
	m, err := amqp10.ParseMessage(whole)
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		return fmt.Errorf("edit: the letter cannot be read: %w", err)
	}
	x.annotations.read(m.MessageAnnotations)
	x.application.read(m.ApplicationProperties)
	if !m.Properties.IsNull() {
		x.propertiesRaw = m.Properties.Append(nil)
		items := m.Properties.ItemsBelow()
		var v amqp10.Value
		for items.Read(&v) {
			x.properties = append(x.properties, v.Append(nil))
		}
	}
	x.body, x.kind, x.footer = m.Body, m.BodyKind, m.Footer
	return nil
}

func (x *edit10) whole() []byte {
	b := x.annotations.append(nil, amqp10.DescriptorMessageAnnotations)
	if x.propertiesDirty {
		var start int
		b, start = amqp10.BeginList(amqp10.AppendDescriptor(b, amqp10.DescriptorProperties))
		for _, field := range x.properties {
			b = append(b, field...)
		}
		b = amqp10.EndCompound(b, start, len(x.properties))
	} else {
		b = append(b, x.propertiesRaw...)
	}
	b = x.application.append(b, amqp10.DescriptorApplicationProperties)
	return slices.Concat(b, x.body, x.footer)
}

// kindOf is what the body was.
func (x *edit10) kindOf(rec message.Record) amqp10.Descriptor {
	switch _, kind, _ := convert.BodyText(rec, 0); kind {
	case convert.KindValue:
		return amqp10.DescriptorAMQPValue
	case convert.KindSequence:
		return amqp10.DescriptorAMQPSequence
	}
	return amqp10.DescriptorData
}

// body10 replaces the body by one section of data, unless it is what is shown of the body anyhow.
func (e *Edit) body10(x *edit10, rec message.Record, changes *[]Change) error {
	old := convert.Body(rec)
	text, kind, _ := convert.BodyText(rec, WholeText(rec))
	if kind != "" {
		old = text
	}
	var more []Change
	body, err := e.body(old, &more)
	if err != nil || len(more) == 0 {
		return err
	}
	*changes = more
	if kind != "" {
		*changes = append(*changes, Change{What: "body.section", Before: kind, After: "data"})
	}
	x.body, x.kind = amqp10.AppendData(nil, body), amqp10.DescriptorData
	return nil
}

// fields10 are where properties of AMQP 0-9-1 are in the section properties.
var fields10 = map[string]amqp10.Property{
	"content_type":     amqp10.PropertyContentType,
	"content_encoding": amqp10.PropertyContentEncoding,
	"correlation_id":   amqp10.PropertyCorrelationID,
	"reply_to":         amqp10.PropertyReplyTo,
	"message_id":       amqp10.PropertyMessageID,
	"user_id":          amqp10.PropertyUserID,
	"app_id":           amqp10.PropertyGroupID,
	"timestamp":        amqp10.PropertyCreationTime,
}

// property changes a property. What differs for clients of AMQP 0-9-1 is noted later.
func (x *edit10) property(name string, v any) error {
	what := "property." + name
	var now []Change
	wanted := x.before
	if err := editProperty(&wanted, name, v, &now); err != nil || len(now) == 0 {
		return err
	}
	switch name {
	case "type":
		if x.kind != amqp10.DescriptorData {
			return fmt.Errorf("edit: %s cannot be changed: the body is a value of AMQP 1.0, and this type says so to clients of AMQP 0-9-1", what)
		}
		if wanted.Type == nil {
			x.annotations.remove("x-basic-type")
		} else {
			x.annotations.set(symbol("x-basic-type"), str(*wanted.Type))
		}
		return nil
	case "delivery_mode":
		if wanted.DeliveryMode != nil && *wanted.DeliveryMode != 1 && *wanted.DeliveryMode != 2 {
			return fmt.Errorf("edit: %s must be 1 or 2: the message came by AMQP 1.0", what)
		}
		x.header.Durable = wanted.DeliveryMode != nil && *wanted.DeliveryMode == 2
		x.annotations.remove("x-basic-delivery-mode")
		return nil
	case "priority":
		x.header.Priority = wanted.Priority
		x.annotations.remove("x-basic-priority")
		return nil
	}
	place, ok := fields10[name]
	if !ok {
		return fmt.Errorf("edit: %s: the message came by AMQP 1.0, which has no such property", what)
	}
	field := amqp10.AppendNull(nil)
	if v != nil {
		var err error
		if field, err = x.field(name, place, &wanted); err != nil {
			return fmt.Errorf("edit: %s %w", what, err)
		}
	}
	for len(x.properties) <= int(place) {
		x.properties = append(x.properties, amqp10.AppendNull(nil))
	}
	x.properties[place], x.propertiesDirty = field, true
	return nil
}

// field is a field of the section properties, of the type that it had if it may have several.
func (x *edit10) field(name string, place amqp10.Property, wanted *amqp091.PropertyList) ([]byte, error) {
	if name == "timestamp" {
		if *wanted.Timestamp > math.MaxInt64/1000 {
			return nil, errors.New("is too large")
		}
		return amqp10.AppendTimestamp(nil, int64(*wanted.Timestamp*1000)), nil
	}
	s := **TextProperties[name](wanted)
	switch place {
	case amqp10.PropertyContentType, amqp10.PropertyContentEncoding:
		if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
			return nil, errors.New("must be ASCII: it is a symbol of AMQP 1.0")
		}
		return amqp10.AppendSymbol(nil, s), nil
	case amqp10.PropertyUserID:
		return amqp10.AppendBinary(nil, s), nil
	case amqp10.PropertyReplyTo:
		if strings.HasPrefix(s, "/") {
			return amqp10.AppendString(nil, s), nil // an address as it is
		}
		return convert.AppendReply(nil, s), nil
	case amqp10.PropertyMessageID, amqp10.PropertyCorrelationID:
		var old amqp10.Value
		if int(place) < len(x.properties) {
			old, _, _ = amqp10.ReadValue(x.properties[place])
		}
		switch old.Type() {
		case amqp10.TypeString:
			return amqp10.AppendString(nil, s), nil
		case amqp10.TypeUlong:
			if n, err := strconv.ParseUint(s, 10, 64); err == nil && strconv.FormatUint(n, 10) == s {
				return amqp10.AppendUlong(nil, n), nil
			}
		}
		return convert.AppendID(nil, s), nil
	}
	return amqp10.AppendString(nil, s), nil
}

func symbol(s string) amqp10.Value { return amqp10.MustValue(amqp10.AppendSymbol(nil, s)) }
func str(s string) amqp10.Value    { return amqp10.MustValue(amqp10.AppendString(nil, s)) }

// setHeader changes a header. What differs for clients of AMQP 0-9-1 is noted later; what they do not see goes to removed.
func (x *edit10) setHeader(name string, v any, removed map[string]any) error {
	what := "header." + name
	if err := checkHeader(name); err != nil {
		return err
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("edit: %s: its name must be UTF-8", what)
	}
	if of := convert.Annotation(name); of != "" && x.application.find(name) == nil {
		return fmt.Errorf("edit: %s: the message came by AMQP 1.0, and there it is %s", what, of)
	}
	at := slices.IndexFunc(x.before.Headers, func(f amqp091.Field) bool { return f.Key == name })
	places, key := []*pairs{&x.application}, str(name)
	switch {
	case name == "BCC":
		return fmt.Errorf("edit: %s: the message came by AMQP 1.0, which has no such keys", what)
	case name == "CC":
		places, key = []*pairs{&x.annotations}, symbol("x-cc")
		if v != nil && !isTexts(v) {
			return fmt.Errorf("edit: %s must be a list of texts: the message came by AMQP 1.0", what)
		}
	case convert.IsX(name) && (x.annotations.find(name) != nil || x.application.find(name) == nil):
		places, key = []*pairs{&x.annotations, &x.application}, symbol(name)
	}
	keyText := (&pair{key: key}).text()
	old := places[0].find(keyText)
	if old == nil && at >= 0 {
		return fmt.Errorf("edit: %s cannot be changed: the message came by AMQP 1.0, and there it is a property or what the broker writes", what)
	}
	if v == nil {
		if old != nil && at < 0 {
			removed[what] = convert.ValueText(old, shownBody)
		}
		for _, p := range places {
			p.remove(keyText)
		}
		return nil
	}
	b, err := retyped10(nil, old, v, 0)
	if err != nil {
		return fmt.Errorf("edit: %s: %w", what, err)
	}
	if old != nil && bytes.Equal(b, old.Append(nil)) {
		return nil
	}
	now, _, err := amqp10.ReadValue(b)
	if err != nil {
		return fmt.Errorf("edit: %s: %w", what, err)
	}
	places[0].set(key, now)
	return nil
}

func isTexts(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(v any) bool { _, ok := v.(string); return !ok })
}

// differ says what clients of AMQP 0-9-1 see of the edit, and refuses it if there is anything that it does not name, or if they do not
// see what it sets. typed: the body is another section now, and with that the type is another one.
func (e *Edit) differ(before, after *amqp091.PropertyList, typed bool, removed map[string]any) (changes []Change, err error) {
	named := map[string]bool{}
	for name := range e.Properties {
		named["property."+name] = true
	}
	for name := range e.Headers {
		named["header."+name] = true
	}
	named["property.type"] = named["property.type"] || typed
	for _, id := range [...]string{"message", "correlation"} { // a binary one is a header
		if _, ok := e.Properties[id+"_id"]; ok {
			named["header.x-"+id+"-id"] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(TextProperties)) {
		noteChange(&changes, "property."+name, *TextProperties[name](before), *TextProperties[name](after), func(s string) any { return topology.Readable(s) })
	}
	octet := func(n uint8) any { return n }
	noteChange(&changes, "property.delivery_mode", before.DeliveryMode, after.DeliveryMode, octet)
	noteChange(&changes, "property.priority", before.Priority, after.Priority, octet)
	noteChange(&changes, "property.timestamp", before.Timestamp, after.Timestamp, func(n uint64) any { return n })
	slices.SortStableFunc(changes, func(a, b Change) int { return strings.Compare(a.What, b.What) })
	names := map[string]bool{}
	for _, table := range []amqp091.Table{before.Headers, after.Headers} {
		for i := range table {
			names[table[i].Key] = true
		}
	}
	for name := range e.Headers {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c, differs := Change{What: "header." + name}, false
		old, was := before.Headers.Get(name)
		now, is := after.Headers.Get(name)
		if was {
			c.Before = topology.HeadersForm.Value(old)
		}
		if is {
			c.After = topology.HeadersForm.Value(now)
		}
		if differs = was != is || was && !bytes.Equal(amqp091.AppendValue(nil, old), amqp091.AppendValue(nil, now)); !differs {
			if gone, ok := removed[c.What]; ok {
				c.Before, differs = gone, true
			}
		}
		if v, asked := e.Headers[name]; asked && (v != nil) != is {
			return nil, fmt.Errorf("edit: %s: clients of AMQP 0-9-1 would not see it so: their headers have no room for it, or no such value", c.What)
		}
		if differs {
			changes = append(changes, c)
		}
	}
	for i := range changes {
		if !named[changes[i].What] {
			return nil, fmt.Errorf("edit: %s would change too, from %s to %s; the edit does not name it", changes[i].What, brief(changes[i].Before), brief(changes[i].After))
		}
	}
	return changes, nil
}

// brief is the beginning of a value, for an error.
func brief(v any) string { return Clean(fmt.Sprint(v), 100) }

// retyped10 is retyped for values of AMQP 1.0; old is nil if there was none.
func retyped10(dst []byte, old *amqp10.Value, v any, depth int) ([]byte, error) {
	if depth > amqp091.MaxDepth {
		return nil, fmt.Errorf("it is nested more than %d deep", amqp091.MaxDepth)
	}
	if old != nil {
		if shown, ok := convert.Field(old); ok && sameJSON(topology.HeadersForm.Value(shown), v) {
			return old.Append(dst), nil
		}
		if old.Type() == amqp10.TypeArray {
			return nil, errors.New("an array of AMQP 1.0 can be taken out, and not be changed")
		}
	}
	var typ amqp10.Type
	if old != nil {
		typ = old.Type()
	}
	switch v := v.(type) {
	case nil:
		return amqp10.AppendNull(dst), nil
	case bool:
		return amqp10.AppendBool(dst, v), nil
	case string:
		return retypedText10(dst, typ, v), nil
	case json.Number:
		return retypedNumber10(dst, typ, v.String())
	case map[string]any:
		return retypedMap10(dst, old, v, depth)
	case []any:
		return retypedList10(dst, old, v, depth)
	}
	return nil, fmt.Errorf("it cannot be a %T", v)
}

// sameJSON says whether what is sent is what was shown.
func sameJSON(shown, sent any) bool {
	a, err := json.Marshal(shown)
	b, err2 := json.Marshal(sent)
	if err != nil || err2 != nil {
		return false
	}
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return readJSON(a, &x) == nil && readJSON(b, &y) == nil && reflect.DeepEqual(x, y)
}

func readJSON(b []byte, to *any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(to)
}

func retypedText10(dst []byte, typ amqp10.Type, s string) []byte {
	switch typ {
	case amqp10.TypeSymbol:
		if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
			return amqp10.AppendSymbol(dst, s)
		}
	case amqp10.TypeBinary:
		return amqp10.AppendBinary(dst, s)
	case amqp10.TypeChar:
		if r, n := utf8.DecodeRuneInString(s); n == len(s) && r != utf8.RuneError {
			return amqp10.AppendChar(dst, r)
		}
	case amqp10.TypeUUID:
		return convert.AppendID(dst, s)
	}
	return amqp10.AppendString(dst, s)
}

func retypedNumber10(dst []byte, typ amqp10.Type, text string) ([]byte, error) {
	signed, errSigned := strconv.ParseInt(text, 10, 64)
	unsigned, errUnsigned := strconv.ParseUint(text, 10, 64)
	float, errFloat := strconv.ParseFloat(text, 64)
	if errFloat != nil {
		return nil, fmt.Errorf("%s is too large a number", text)
	}
	is, of := errSigned == nil, errUnsigned == nil
	switch {
	case typ == amqp10.TypeUbyte && of && unsigned <= math.MaxUint8:
		return amqp10.AppendUbyte(dst, uint8(unsigned)), nil
	case typ == amqp10.TypeUshort && of && unsigned <= math.MaxUint16:
		return amqp10.AppendUshort(dst, uint16(unsigned)), nil
	case typ == amqp10.TypeUint && of && unsigned <= math.MaxUint32:
		return amqp10.AppendUint(dst, uint32(unsigned)), nil
	case typ == amqp10.TypeUlong && of:
		return amqp10.AppendUlong(dst, unsigned), nil
	case typ == amqp10.TypeByte && is && int64(int8(signed)) == signed:
		return amqp10.AppendByte(dst, int8(signed)), nil
	case typ == amqp10.TypeShort && is && int64(int16(signed)) == signed:
		return amqp10.AppendShort(dst, int16(signed)), nil
	case typ == amqp10.TypeInt && is && int64(int32(signed)) == signed:
		return amqp10.AppendInt(dst, int32(signed)), nil
	case typ == amqp10.TypeTimestamp && is && signed <= math.MaxInt64/1000 && signed >= math.MinInt64/1000:
		return amqp10.AppendTimestamp(dst, signed*1000), nil // headers show seconds
	case typ == amqp10.TypeFloat:
		if shorter, err := strconv.ParseFloat(text, 32); err == nil && (float == shorter || strconv.FormatFloat(shorter, 'g', -1, 32) == text) {
			return amqp10.AppendFloat(dst, float32(shorter)), nil
		}
	case typ == amqp10.TypeDouble:
		return amqp10.AppendDouble(dst, float), nil
	}
	if is {
		return amqp10.AppendLong(dst, signed), nil
	}
	return amqp10.AppendDouble(dst, float), nil
}

// retypedMap10 keeps the order and the types of the keys, and pairs that clients of AMQP 0-9-1 do not see.
func retypedMap10(dst []byte, old *amqp10.Value, v map[string]any, depth int) ([]byte, error) {
	b, start := amqp10.BeginMap(dst)
	n, known, symbols := 0, map[string]bool{}, false
	if old != nil && old.Type() == amqp10.TypeMap {
		items := old.Items()
		var key, value amqp10.Value
		for items.Read(&key) && items.Read(&value) {
			_, isText := key.Text()
			_, isSymbol := key.Symbol()
			name := (&pair{key: key}).text()
			symbols = symbols || isSymbol
			now, stays := v[name]
			_, shown := convert.Field(&value)
			switch {
			case (isText || isSymbol) && stays && !known[name]:
				known[name] = true
				var err error
				if b, err = retyped10(key.Append(b), &value, now, depth+1); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				n += 2
			case !isText && !isSymbol || !shown || len(name) > math.MaxUint8:
				b, n = value.Append(key.Append(b)), n+2
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if known[name] {
			continue
		}
		if len(name) > math.MaxUint8 {
			return nil, fmt.Errorf("a name of %d bytes is too long", len(name))
		}
		if symbols && convertible(name) {
			b = amqp10.AppendSymbol(b, name)
		} else {
			b = amqp10.AppendString(b, name)
		}
		var err error
		if b, err = retyped10(b, nil, v[name], depth+1); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		n += 2
	}
	return amqp10.EndCompound(b, start, n), nil
}

// convertible says whether a name can be a symbol.
func convertible(name string) bool {
	return strings.IndexFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

func retypedList10(dst []byte, old *amqp10.Value, v []any, depth int) ([]byte, error) {
	var before []amqp10.Value
	if old != nil && old.Type() == amqp10.TypeList {
		items := old.Items()
		for item, ok := items.Next(); ok; item, ok = items.Next() {
			if _, shown := convert.Field(&item); !shown {
				return nil, errors.New("the list has values that AMQP 0-9-1 has not: it can be taken out, and not be changed")
			}
			before = append(before, item)
		}
	}
	b, start := amqp10.BeginList(dst)
	for i := range v {
		var like *amqp10.Value
		if i < len(before) {
			like = &before[i]
		}
		var err error
		if b, err = retyped10(b, like, v[i], depth+1); err != nil {
			return nil, err
		}
	}
	return amqp10.EndCompound(b, start, len(v)), nil
}
