package amqp10

import (
	"bytes"
	"testing"
)

// Values of another type become the right one where they can, and are left out elsewhere; a user-id that is a string is not mended.
func TestMend(t *testing.T) {
	section := func(d Descriptor, kind func([]byte) ([]byte, int), fields ...[]byte) []byte {
		b, start := kind(AppendDescriptor(nil, d))
		return EndCompound(append(b, bytes.Join(fields, nil)...), start, len(fields))
	}
	null, body := AppendNull(nil), AppendData(nil, []byte("body"))
	text := func(s string) []byte { return AppendString(nil, s) }
	for name, c := range map[string]struct {
		section, want []byte
		bad           bool
	}{
		"message-id is a long":      {section(DescriptorProperties, BeginList, AppendLong(nil, 123)), section(DescriptorProperties, BeginList, AppendUlong(nil, 123)), false},
		"message-id is an int":      {section(DescriptorProperties, BeginList, AppendInt(nil, -1)), section(DescriptorProperties, BeginList, null), false},
		"message-id is a symbol":    {section(DescriptorProperties, BeginList, AppendSymbol(nil, "id")), section(DescriptorProperties, BeginList, text("id")), false},
		"to is a uint":              {section(DescriptorProperties, BeginList, null, null, AppendUint(nil, 7), text("s")), section(DescriptorProperties, BeginList, null, null, null, text("s")), false},
		"content-type is a string":  {section(DescriptorProperties, BeginList, null, null, null, null, null, null, text("a/b")), section(DescriptorProperties, BeginList, null, null, null, null, null, null, AppendSymbol(nil, "a/b")), false},
		"user-id is a string":       {section(DescriptorProperties, BeginList, null, text("guest")), nil, true},
		"ttl is a ulong":            {section(DescriptorHeader, BeginList, AppendBool(nil, true), AppendUint(nil, 5), AppendUlong(nil, 1000)), section(DescriptorHeader, BeginList, AppendBool(nil, true), AppendUbyte(nil, 5), AppendUint(nil, 1000)), false},
		"ttl is too much":           {section(DescriptorHeader, BeginList, null, null, AppendUlong(nil, 1<<40)), section(DescriptorHeader, BeginList, null, null, null), false},
		"durable is a text":         {section(DescriptorHeader, BeginList, text("true")), section(DescriptorHeader, BeginList, null), false},
		"keys that are no strings":  {section(DescriptorApplicationProperties, BeginMap, AppendSymbol(nil, "a"), text("1"), AppendUint(nil, 2), text("2"), text("c"), text("3")), section(DescriptorApplicationProperties, BeginMap, text("a"), text("1"), text("c"), text("3")), false},
		"too many fields":           {section(DescriptorHeader, BeginList, null, null, null, null, null, null), nil, true},
		"creation-time is a ulong":  {section(DescriptorProperties, BeginList, null, null, null, null, null, null, null, null, null, AppendUlong(nil, 9)), section(DescriptorProperties, BeginList, null, null, null, null, null, null, null, null, null, AppendTimestamp(nil, 9)), false},
		"group-sequence is a float": {section(DescriptorProperties, BeginList, null, null, null, null, null, null, null, null, null, null, null, AppendFloat(nil, 1)), section(DescriptorProperties, BeginList, null, null, null, null, null, null, null, null, null, null, null, null), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Mend(append(c.section, body...))
			if ok == c.bad || ok && !bytes.Equal(got, append(c.want, body...)) {
				t.Fatalf("%x, %v; want %x", got, ok, append(c.want, body...))
			}
			if !ok {
				return
			}
			m, err := ParseMessage(got)
			if err == nil {
				err = m.Check()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Whatever a message is, what is made of it reads well where it could be mended, or fails as it did.
func FuzzMend(f *testing.F) {
	f.Add(append(AppendDescriptor(nil, DescriptorProperties), 0xc0, 3, 1, 0x55, 1))
	f.Add(append(AppendDescriptor(nil, DescriptorHeader), 0xc0, 4, 3, 0x40, 0x43, 0x80))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, ok := Mend(b); ok {
			if again, ok := Mend(got); !ok || !bytes.Equal(again, got) {
				t.Errorf("%x mended again is %x", got, again)
			}
		}
	})
}
