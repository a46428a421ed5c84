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
