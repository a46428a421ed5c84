package convert_test

import (
	"slices"
	"testing"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/wire/amqp10"
)

func footer() []byte {
	b, start := amqp10.BeginMap(amqp10.AppendDescriptor(nil, amqp10.DescriptorFooter))
	return amqp10.EndCompound(b, start, 0)
}

// Several data sections are one body for a client of AMQP 0-9-1. A body that only looks like sections stays as it is.
func TestTheBodyForAMQP091(t *testing.T) {
	data := amqp10.AppendData(nil, []byte("one"))
	two := slices.Concat(data, amqp10.AppendData(nil, []byte("two")))
	value := amqp10.AppendString(amqp10.AppendDescriptor(nil, amqp10.DescriptorAMQPValue), "text")
	subject := amqp10.Properties{Subject: []byte("s")}
	for name, c := range map[string]struct{ message, body []byte }{
		"one section":                {data, []byte("one")},
		"two sections":               {two, []byte("onetwo")},
		"two, after others":          {slices.Concat(subject.Append(nil), two), []byte("onetwo")},
		"two, with a footer":         {slices.Concat(two, footer()), []byte("onetwo")},
		"one that looks like two":    {amqp10.AppendData(nil, two), two},
		"one that begins like two":   {amqp10.AppendData(nil, two[:7]), two[:7]},
		"a value":                    {value, value},
		"an empty section and other": {slices.Concat(amqp10.AppendData(nil, nil), data), []byte("one")},
	} {
		m, err := amqp10.ParseMessage(c.message)
		if err != nil {
			t.Fatal(err)
		}
		rec := stored(t, &m)
		if got := convert.Body(rec); string(got) != string(c.body) {
			t.Errorf("%s: %q, want %q", name, got, c.body)
		}
		head, body, tail := convert.AppendAMQP10(nil, rec, &convert.Delivery{})
		whole, err := amqp10.ParseMessage(slices.Concat(head, body, tail))
		if err != nil || string(whole.Bare) != string(m.Bare) || string(whole.Footer) != string(m.Footer) {
			t.Errorf("%s: by AMQP 1.0 it is % x, %v", name, whole.Bare, err)
		}
	}
}

// What is stored of a message can be taken apart in one way only.
func TestSectionsAreAWholeMessage(t *testing.T) {
	subject := amqp10.Properties{Subject: []byte("s")}
	properties := subject.Append(nil)
	data := amqp10.AppendData(nil, []byte("abc"))
	head := slices.Concat(properties, data[:len(data)-3])
	value := amqp10.AppendString(amqp10.AppendDescriptor(nil, amqp10.DescriptorAMQPValue), "text")
	two := slices.Concat(data, data)
	for name, c := range map[string]struct {
		head, body, tail []byte
		ok               bool
	}{
		"data":               {head, []byte("abc"), nil, true},
		"with a footer":      {head, []byte("abc"), footer(), true},
		"an empty body":      {amqp10.AppendData(nil, []byte{}), nil, nil, true},
		"a value":            {properties, value, nil, true},
		"two data sections":  {properties, two, footer(), true},
		"data, all of it":    {properties, data, nil, false},
		"a part of the body": {append(slices.Clone(head), 'a'), []byte("bc"), nil, false},
		"no body":            {properties, nil, nil, false},
		"too short":          {head, []byte("ab"), nil, false},
		"footer in the body": {properties, slices.Concat(value, footer()), nil, false},
		"body in the tail":   {properties, nil, value, false},
		"no sections":        {nil, []byte("abc"), nil, false},
	} {
		if err := convert.CheckSections(&message.Sections{Head: c.head, Tail: c.tail}, c.body); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
