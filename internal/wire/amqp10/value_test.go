package amqp10

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// mustRead reads the one value that b is.
func mustRead(t testing.TB, b []byte) Value {
	t.Helper()
	v, rest, err := ReadValue(b)
	if err != nil || len(rest) > 0 {
		t.Fatalf("% x: %d bytes left, error %v", b, len(rest), err)
	}
	if err := v.Check(); err != nil {
		t.Fatalf("% x: %v", b, err)
	}
	return v
}

// model is a value as Go sees it, for comparisons: what the accessors return, a slice for what has items, and
// a described for what has a descriptor.
func model(v Value) any {
	if v.Type() == TypeDescribed {
		return described{model(v.DescriptorValue()), model(v.Underlying())}
	}
	switch v.Type() {
	case TypeNull:
		return nil
	case TypeBoolean:
		b, _ := v.Bool()
		return b
	case TypeUbyte, TypeUshort, TypeUint, TypeUlong:
		n, _ := v.Uint64()
		return typed{v.Type(), n}
	case TypeByte, TypeShort, TypeInt, TypeLong:
		n, _ := v.Int64()
		return typed{v.Type(), n}
	case TypeFloat, TypeDouble:
		f, _ := v.Float64()
		return typed{v.Type(), f}
	case TypeDecimal32, TypeDecimal64, TypeDecimal128:
		b, _ := v.Decimal()
		return typed{v.Type(), string(b)}
	case TypeChar:
		r, _ := v.Char()
		return typed{v.Type(), r}
	case TypeTimestamp:
		ms, _ := v.Timestamp()
		return typed{v.Type(), ms}
	case TypeUUID:
		id, _ := v.UUID()
		return typed{v.Type(), id}
	case TypeBinary:
		b, _ := v.Binary()
		return typed{v.Type(), string(b)}
	case TypeString:
		b, _ := v.Text()
		return typed{v.Type(), string(b)}
	case TypeSymbol:
		b, _ := v.Symbol()
		return typed{v.Type(), string(b)}
	case TypeList, TypeMap, TypeArray:
		items := []any{}
		it := v.Items()
		for item, ok := it.Next(); ok; item, ok = it.Next() {
			items = append(items, model(item))
		}
		if it.Err() != nil {
			return it.Err().Error()
		}
		return typed{v.Type(), items}
	}
	return "no value"
}

type typed struct {
	Type  Type
	Value any
}

type described struct{ Descriptor, Value any }

func ulong(n uint64) any  { return typed{TypeUlong, n} }
func symbol(s string) any { return typed{TypeSymbol, s} }

func TestEveryEncodingIsRead(t *testing.T) {
	id := [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	for _, c := range []struct {
		section, wire string
		want          any
	}{
		{"1.6.1", "\x40", nil},
		{"1.6.2", "\x56\x00", false},
		{"1.6.2", "\x56\x01", true},
		{"1.6.2", "\x41", true},
		{"1.6.2", "\x42", false},
		{"1.6.3", "\x50\xff", typed{TypeUbyte, uint64(255)}},
		{"1.6.4", "\x60\xff\xfe", typed{TypeUshort, uint64(65534)}},
		{"1.6.5", "\x70\xff\xff\xff\xfe", typed{TypeUint, uint64(math.MaxUint32 - 1)}},
		{"1.6.5", "\x52\xff", typed{TypeUint, uint64(255)}},
		{"1.6.5", "\x43", typed{TypeUint, uint64(0)}},
		{"1.6.6", "\x80\xff\xff\xff\xff\xff\xff\xff\xfe", typed{TypeUlong, uint64(math.MaxUint64 - 1)}},
		{"1.6.6", "\x53\xff", typed{TypeUlong, uint64(255)}},
		{"1.6.6", "\x44", typed{TypeUlong, uint64(0)}},
		{"1.6.7", "\x51\xff", typed{TypeByte, int64(-1)}},
		{"1.6.8", "\x61\xff\xfe", typed{TypeShort, int64(-2)}},
		{"1.6.9", "\x71\xff\xff\xff\xfe", typed{TypeInt, int64(-2)}},
		{"1.6.9", "\x54\xfe", typed{TypeInt, int64(-2)}},
		{"1.6.10", "\x81\xff\xff\xff\xff\xff\xff\xff\xfe", typed{TypeLong, int64(-2)}},
		{"1.6.10", "\x55\xfe", typed{TypeLong, int64(-2)}},
		{"1.6.11", "\x72\x3f\xc0\x00\x00", typed{TypeFloat, 1.5}},
		{"1.6.12", "\x82\x3f\xf8\x00\x00\x00\x00\x00\x00", typed{TypeDouble, 1.5}},
		{"1.6.13", "\x74abcd", typed{TypeDecimal32, "abcd"}},
		{"1.6.14", "\x84abcdefgh", typed{TypeDecimal64, "abcdefgh"}},
		{"1.6.15", "\x94abcdefghijklmnop", typed{TypeDecimal128, "abcdefghijklmnop"}},
		{"1.6.16", "\x73\x00\x01\xf4\xec", typed{TypeChar, rune(0x1f4ec)}},
		{"1.6.17", "\x83\xff\xff\xff\xff\xff\xff\xff\xff", typed{TypeTimestamp, int64(-1)}},
		{"1.6.18", "\x98" + string(id[:]), typed{TypeUUID, id}},
		{"1.6.19", "\xa0\x02\xff\x00", typed{TypeBinary, "\xff\x00"}},
		{"1.6.19", "\xb0\x00\x00\x00\x02\xff\x00", typed{TypeBinary, "\xff\x00"}},
		{"1.6.20", "\xa1\x02é", typed{TypeString, "é"}},
		{"1.6.20", "\xb1\x00\x00\x00\x02é", typed{TypeString, "é"}},
		{"1.6.21", "\xa3\x02ab", typed{TypeSymbol, "ab"}},
		{"1.6.21", "\xb3\x00\x00\x00\x02ab", typed{TypeSymbol, "ab"}},
		{"1.6.22", "\x45", typed{TypeList, []any{}}},
		{"1.6.22", "\xc0\x03\x02\x40\x41", typed{TypeList, []any{nil, true}}},
		{"1.6.22", "\xd0\x00\x00\x00\x06\x00\x00\x00\x02\x40\x41", typed{TypeList, []any{nil, true}}},
		{"1.6.23", "\xc1\x05\x02\xa1\x01k\x41", typed{TypeMap, []any{typed{TypeString, "k"}, true}}},
		{"1.6.23", "\xd1\x00\x00\x00\x08\x00\x00\x00\x02\xa1\x01k\x41", typed{TypeMap, []any{typed{TypeString, "k"}, true}}},
		{"1.6.24", "\xe0\x04\x02\x50\x01\x02", typed{TypeArray, []any{typed{TypeUbyte, uint64(1)}, typed{TypeUbyte, uint64(2)}}}},
		{"1.6.24", "\xf0\x00\x00\x00\x07\x00\x00\x00\x02\x50\x01\x02", typed{TypeArray, []any{typed{TypeUbyte, uint64(1)}, typed{TypeUbyte, uint64(2)}}}},
		{"1.6.24, of what takes no octets", "\xe0\x02\x02\x43", typed{TypeArray, []any{typed{TypeUint, uint64(0)}, typed{TypeUint, uint64(0)}}}},
		{"1.6.24, of lists", "\xe0\x07\x02\xc0\x02\x01\x41\x01\x00", typed{TypeArray, []any{typed{TypeList, []any{true}}, typed{TypeList, []any{}}}}},
		{"1.6.24, of arrays", "\xe0\x06\x01\xe0\x03\x01\x50\x07", typed{TypeArray, []any{typed{TypeArray, []any{typed{TypeUbyte, uint64(7)}}}}}},
		{"1.6.24, of described values", "\xe0\x07\x02\x00\x53\x24\x50\x01\x02", typed{TypeArray, []any{described{ulong(0x24), typed{TypeUbyte, uint64(1)}}, described{ulong(0x24), typed{TypeUbyte, uint64(2)}}}}},
		{"1.2, described", "\x00\xa3\x01x\x41", described{symbol("x"), true}},
		{"1.2, described twice", "\x00\xa3\x01x\x00\x44\x41", described{symbol("x"), described{ulong(0), true}}},
	} {
		v := mustRead(t, []byte(c.wire))
		if diff := cmp.Diff(c.want, model(v)); diff != "" {
			t.Errorf("%s: % x: %s", c.section, c.wire, diff)
		}
		if got := v.Append(nil); string(got) != c.wire {
			t.Errorf("%s: % x is written as % x", c.section, c.wire, got)
		}
	}
}

// The examples of part 1, octet by octet.
func TestExamplesOfTheStandard(t *testing.T) {
	const greeting = "\xa1\x1eHello Glorious Messaging World"
	if diff := cmp.Diff(any(typed{TypeString, "Hello Glorious Messaging World"}), model(mustRead(t, []byte(greeting)))); diff != "" {
		t.Errorf("1.2, primitive: %s", diff)
	}
	if got := AppendString(nil, "Hello Glorious Messaging World"); string(got) != greeting {
		t.Errorf("1.2, primitive: got % x", got)
	}
	const url = "\x00\xa1\x03URL\xa1\x1ehttp://example.org/hello-world"
	// The figure describes by a string, which the text of 1.5 reserves.
	if diff := cmp.Diff(any(described{typed{TypeString, "URL"}, typed{TypeString, "http://example.org/hello-world"}}), model(mustRead(t, []byte(url)))); diff != "" {
		t.Errorf("1.2, described by a string: %s", diff)
	}
	const symbolic = "\x00\xa3\x03URL\xa1\x1ehttp://example.org/hello-world"
	if got := AppendString(AppendSymbolicDescriptor(nil, "URL"), "http://example.org/hello-world"); string(got) != symbolic {
		t.Errorf("1.2, described: got % x", got)
	}
	if diff := cmp.Diff(any(described{symbol("URL"), typed{TypeString, "http://example.org/hello-world"}}), model(mustRead(t, []byte(symbolic)))); diff != "" {
		t.Errorf("1.2, described: %s", diff)
	}
	const book = "\x00\xa3\x11example:book:list\xc0\x40\x03\xa1\x15AMQP for & by Dummies\xe0\x25\x02\xa1\x0eRob J. Godfrey\x13Rafael H. Schloming\x40"
	want := described{symbol("example:book:list"), typed{TypeList, []any{
		typed{TypeString, "AMQP for & by Dummies"},
		typed{TypeArray, []any{typed{TypeString, "Rob J. Godfrey"}, typed{TypeString, "Rafael H. Schloming"}}},
		nil,
	}}}
	v := mustRead(t, []byte(book))
	if diff := cmp.Diff(any(want), model(v)); diff != "" {
		t.Errorf("1.4, book: %s", diff)
	}
	if got := v.Append(nil); string(got) != book {
		t.Errorf("1.4, book: got % x", got)
	}
}

func TestNumbersAreWrittenShort(t *testing.T) {
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{AppendUint(nil, 0), "\x43"}, {AppendUint(nil, 255), "\x52\xff"}, {AppendUint(nil, 256), "\x70\x00\x00\x01\x00"},
		{AppendUlong(nil, 0), "\x44"}, {AppendUlong(nil, 255), "\x53\xff"}, {AppendUlong(nil, 256), "\x80\x00\x00\x00\x00\x00\x00\x01\x00"},
		{AppendInt(nil, 127), "\x54\x7f"}, {AppendInt(nil, -128), "\x54\x80"}, {AppendInt(nil, 128), "\x71\x00\x00\x00\x80"},
		{AppendLong(nil, -128), "\x55\x80"}, {AppendLong(nil, -129), "\x81\xff\xff\xff\xff\xff\xff\xff\x7f"},
		{AppendBinary(nil, strings.Repeat("x", 255)), "\xa0\xff" + strings.Repeat("x", 255)},
		{AppendBinary(nil, strings.Repeat("x", 256)), "\xb0\x00\x00\x01\x00" + strings.Repeat("x", 256)},
	} {
		if string(c.got) != c.want {
			t.Errorf("got % x, want % x", c.got, c.want)
		}
	}
}

// drawValue appends a value of any type in any encoding, and returns what it is.
func drawValue(t *rapid.T, dst []byte, depth int) ([]byte, any) {
	kinds := 19
	if depth > 0 {
		kinds = 23
	}
	full := rapid.Bool().Draw(t, "full")
	text := rapid.StringN(0, 40, 400)
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return AppendNull(dst), nil
	case 1:
		b := rapid.Bool().Draw(t, "boolean")
		if full {
			return append(dst, codeBoolean, map[bool]byte{true: 1}[b]), b
		}
		return AppendBool(dst, b), b
	case 2:
		n := rapid.Uint8().Draw(t, "ubyte")
		return AppendUbyte(dst, n), typed{TypeUbyte, uint64(n)}
	case 3:
		n := rapid.Uint16().Draw(t, "ushort")
		return AppendUshort(dst, n), typed{TypeUshort, uint64(n)}
	case 4:
		n := rapid.Uint32().Draw(t, "uint")
		if full {
			return append(dst, codeUint, byte(n>>24), byte(n>>16), byte(n>>8), byte(n)), typed{TypeUint, uint64(n)}
		}
		return AppendUint(dst, n), typed{TypeUint, uint64(n)}
	case 5:
		n := rapid.Uint64().Draw(t, "ulong")
		return AppendUlong(dst, n), typed{TypeUlong, n}
	case 6:
		n := rapid.Int8().Draw(t, "byte")
		return AppendByte(dst, n), typed{TypeByte, int64(n)}
	case 7:
		n := rapid.Int16().Draw(t, "short")
		return AppendShort(dst, n), typed{TypeShort, int64(n)}
	case 8:
		n := rapid.Int32().Draw(t, "int")
		return AppendInt(dst, n), typed{TypeInt, int64(n)}
	case 9:
		n := rapid.Int64().Draw(t, "long")
		return AppendLong(dst, n), typed{TypeLong, n}
	case 10:
		f := rapid.Float32().Draw(t, "float")
		return AppendFloat(dst, f), typed{TypeFloat, float64(f)}
	case 11:
		f := rapid.Float64().Draw(t, "double")
		return AppendDouble(dst, f), typed{TypeDouble, f}
	case 12:
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "decimal")
		switch rapid.IntRange(0, 2).Draw(t, "width") {
		case 0:
			return AppendDecimal32(dst, [4]byte(b)), typed{TypeDecimal32, string(b[:4])}
		case 1:
			return AppendDecimal64(dst, [8]byte(b)), typed{TypeDecimal64, string(b[:8])}
		}
		return AppendDecimal128(dst, [16]byte(b)), typed{TypeDecimal128, string(b)}
	case 13:
		r := rapid.Rune().Draw(t, "char")
		return AppendChar(dst, r), typed{TypeChar, r}
	case 14:
		ms := rapid.Int64().Draw(t, "timestamp")
		return AppendTimestamp(dst, ms), typed{TypeTimestamp, ms}
	case 15:
		id := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
		return AppendUUID(dst, id), typed{TypeUUID, id}
	case 16:
		b := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "binary")
		return AppendBinary(dst, b), typed{TypeBinary, string(b)}
	case 17:
		s := text.Draw(t, "string")
		return AppendString(dst, s), typed{TypeString, s}
	case 18:
		s := rapid.StringMatching(`[a-z:-]{0,20}`).Draw(t, "symbol")
		return AppendSymbol(dst, s), typed{TypeSymbol, s}
	case 19:
		n := rapid.IntRange(0, 5).Draw(t, "values")
		items := []any{}
		dst, start := BeginList(dst)
		for range n {
			var item any
			dst, item = drawValue(t, dst, depth-1)
			items = append(items, item)
		}
		return EndCompound(dst, start, n), typed{TypeList, items}
	case 20:
		n := 2 * rapid.IntRange(0, 3).Draw(t, "pairs")
		items := []any{}
		dst, start := BeginMap(dst)
		for range n {
			var item any
			dst, item = drawValue(t, dst, depth-1)
			items = append(items, item)
		}
		return EndCompound(dst, start, n), typed{TypeMap, items}
	case 21:
		symbols := rapid.SliceOfN(rapid.StringMatching(`[a-z]{0,90}`), 0, 4).Draw(t, "symbols")
		items := []any{}
		for _, s := range symbols {
			items = append(items, typed{TypeSymbol, s})
		}
		return AppendSymbols(dst, symbols...), typed{TypeArray, items}
	}
	if full {
		s := rapid.StringMatching(`[a-z:]{1,20}`).Draw(t, "descriptor")
		dst, v := drawValue(t, AppendSymbolicDescriptor(dst, s), depth-1)
		return dst, described{symbol(s), v}
	}
	n := rapid.Uint64().Draw(t, "descriptor")
	dst, v := drawValue(t, AppendDescriptor(dst, Descriptor(n)), depth-1)
	return dst, described{ulong(n), v}
}

func TestValuesComeThroughTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, want := drawValue(t, nil, 3)
		v, rest, err := ReadValue(append(bytes.Clone(b), "rest"...))
		if err != nil || string(rest) != "rest" {
			t.Fatalf("% x: rest %q, error %v", b, rest, err)
		}
		if err := v.Check(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, model(v)); diff != "" {
			t.Fatalf("sent and received differ:\n%s", diff)
		}
		if again := v.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("read % x, written % x", b, again)
		}
		for i := range b {
			if _, _, err := ReadValue(b[:i]); err == nil {
				t.Fatalf("% x cut at %d is a value", b, i)
			}
		}
	})
}

// Arrays of every type, of values in whatever encodings.
func TestArraysComeThroughTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var elements []Value
		items := []any{}
		for range rapid.IntRange(0, 40).Draw(t, "values") {
			b, item := drawValue(t, nil, 2)
			v, _, err := ReadValue(b)
			if err != nil {
				t.Fatal(err)
			}
			first := v
			if len(elements) > 0 {
				first = elements[0]
			}
			if types[v.code] == types[first.code] && bytes.Equal(v.descriptors, first.descriptors) {
				elements, items = append(elements, v), append(items, item)
			} else if _, err := AppendArray(nil, first, v); !errors.Is(err, ErrType) {
				t.Fatalf("an array of %v and %v: got error %v", model(first), model(v), err)
			}
		}
		b, err := AppendArray([]byte("before"), elements...)
		if err != nil {
			t.Fatal(err)
		}
		v, rest, err := ReadValue(b[len("before"):])
		if err != nil || len(rest) > 0 || v.Check() != nil {
			t.Fatalf("% x: rest % x, error %v, %v", b, rest, err, v.Check())
		}
		if diff := cmp.Diff(any(typed{TypeArray, items}), model(v)); diff != "" {
			t.Fatalf("sent and received differ:\n%s", diff)
		}
	})
	many := make([]Value, maxEmptyElements+1)
	for i := range many {
		many[i] = MustValue(AppendNull(nil))
	}
	if _, err := AppendArray(nil, many...); !errors.Is(err, ErrCount) {
		t.Errorf("%d nulls: got error %v", len(many), err)
	}
	if _, err := AppendArray(nil, Value{}); !errors.Is(err, ErrType) {
		t.Errorf("an array of no value: got error %v", err)
	}
}

func TestLongListsAndMapsBecomeWide(t *testing.T) {
	for _, n := range []int{0, 2, 254, 255, 256, 300, 70_000} {
		for name, begin := range map[string]func([]byte) ([]byte, int){"list": BeginList, "map": BeginMap} {
			if name == "map" && n%2 != 0 {
				continue
			}
			b, start := begin([]byte("before"))
			for i := range n {
				b = AppendBool(b, i%3 == 0)
			}
			v := mustRead(t, EndCompound(b, start, n)[start:])
			if v.Len() != n || v.Type().String() != name {
				t.Errorf("%s of %d values: got %v of %d", name, n, v.Type(), v.Len())
			}
		}
	}
}

func TestMalformedValues(t *testing.T) {
	for _, c := range []struct {
		name, wire string
		want       error
	}{
		{"nothing", "", ErrTruncated},
		{"a code that no type has", "\x3f", ErrFormatCode},
		{"another", "\xff", ErrFormatCode},
		{"a descriptor and nothing", "\x00\x44", ErrTruncated},
		{"a descriptor of nothing", "\x00", ErrTruncated},
		{"a descriptor that is described", "\x00\x00\x44\x44\x40", ErrDescriptor},
		{"a descriptor that is a list", "\x00\xc0\x01\x00\x40", ErrDescriptor},
		{"a descriptor that is an empty list", "\x00\x45\x40", ErrDescriptor},
		{"a descriptor that is cut off", "\x00\xa3\x09\x40", ErrTruncated},
		{"a list of 4 GiB", "\xd0\xff\xff\xff\xff\x00\x00\x00\x01\x40", ErrTruncated},
		{"a list without its count", "\xd0\x00\x00\x00\x01\x00", ErrTruncated},
		{"a list8 without its count", "\xc0\x00", ErrTruncated},
		{"2^31 nulls in 1 octet", "\xd0\x00\x00\x00\x05\x80\x00\x00\x00\x40", ErrCount},
		{"a map with a key too many", "\xc1\x02\x01\x40", ErrCount},
		{"an array of 2^31 nulls", "\xf0\x00\x00\x00\x05\x80\x00\x00\x00\x40", ErrCount},
		{"an array of 2^31 empty lists", "\xf0\x00\x00\x00\x05\x80\x00\x00\x00\x45", ErrCount},
		{"an array of 256 nulls", "\xf0\x00\x00\x00\x05\x00\x00\x01\x00\x40", ErrCount},
		{"an array of 2^31 described nulls", "\xf0\x00\x00\x00\x08\x80\x00\x00\x00\x00\x53\x24\x40", ErrCount},
		{"an array of 2^31 octets in 1", "\xf0\x00\x00\x00\x06\x80\x00\x00\x00\x50\x01", ErrCount},
		{"an array of 2^32-1 strings in 1 octet", "\xf0\x00\x00\x00\x06\xff\xff\xff\xff\xa1\x00", ErrCount},
		{"an array of 2^28+1 uuids in 16 octets", "\xf0\x00\x00\x00\x15\x10\x00\x00\x01\x98abcdefghijklmnop", ErrCount},
		{"an array without a constructor", "\xe0\x01\x00", ErrTruncated},
		{"octets after an array", "\xe0\x04\x01\x50\x01\x02", ErrCount},
		{"octets after an array of strings", "\xe0\x05\x01\xa1\x00\x01\x02", ErrTrailing},
		{"octets after a list", "\xc0\x03\x01\x40\x40", ErrTrailing},
		{"a list in a list that goes past it", "\xc0\x03\x01\xc0\x09", ErrTruncated},
		{"a boolean that is 2", "\x56\x02", ErrValue},
		{"a char past Unicode", "\x73\x00\x11\x00\x00", ErrValue},
		{"a char that is half a pair", "\x73\x00\x00\xd8\x00", ErrValue},
		{"a char that is negative as a rune", "\x73\xff\xff\xff\xff", ErrValue},
		{"a string that is not UTF-8", "\xa1\x01\xff", ErrUTF8},
		{"a symbol that is not ASCII", "\xa3\x02é", ErrASCII},
		{"a descriptor that is not ASCII", "\x00\xa3\x02é\x40", ErrASCII},
		{"a string in an array", "\xe0\x04\x01\xa1\x01\xff", ErrUTF8},
	} {
		v, rest, err := ReadValue([]byte(c.wire))
		if err == nil {
			err = v.Check()
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want %v, rest % x", c.name, err, c.want, rest)
		}
	}
}

// nested is a value with n lists around it, each of the encoding with sizes of four octets.
func nested(n int) []byte {
	b := []byte{codeNull}
	for range n {
		inner := b
		out, start := BeginList(nil)
		b = EndCompound(append(out, inner...), start, 1)
	}
	return b
}

func TestDepthIsBounded(t *testing.T) {
	if err := mustRead(t, nested(maxDepth)).Check(); err != nil {
		t.Errorf("%d lists: %v", maxDepth, err)
	}
	v, _, err := ReadValue(nested(maxDepth + 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Check(); !errors.Is(err, ErrTooDeep) {
		t.Errorf("%d lists: got error %v", maxDepth+1, err)
	}
	if _, _, err := ReadValue(append(bytes.Repeat([]byte{0, codeUlong0}, maxDepth+1), codeNull)); !errors.Is(err, ErrTooDeep) {
		t.Errorf("%d descriptors: got error %v", maxDepth+1, err)
	}
	content := []byte{0, 0, 0, 0, codeNull}
	for range maxDepth + 1 {
		size := len(content)
		content = append([]byte{0, 0, 0, 1, codeArray32, 0, 0, byte(size >> 8), byte(size)}, content...)
	}
	size := len(content)
	v, _, err = ReadValue(append([]byte{codeArray32, 0, 0, byte(size >> 8), byte(size)}, content...))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Check(); !errors.Is(err, ErrTooDeep) {
		t.Errorf("arrays of arrays: got error %v", err)
	}
}

// A hostile value costs its own size, whatever it announces: what everybody does with one, Check, allocates
// nothing.
func TestHostileValuesTakeNoMemory(t *testing.T) {
	var manyNulls, arrays []byte
	manyNulls, start := BeginList(nil)
	for range 100_000 {
		manyNulls = AppendNull(manyNulls)
	}
	manyNulls = EndCompound(manyNulls, start, 100_000)
	arrays, start = BeginList(nil)
	for range 30_000 {
		arrays = append(arrays, codeArray8, 2, 255, codeNull)
	}
	arrays = EndCompound(arrays, start, 30_000)
	longDescriptor := AppendSymbolicDescriptor(nil, strings.Repeat("x", 60_000))
	longDescriptor = append(longDescriptor, codeUbyte)
	described := append([]byte{codeArray32, 0, 1, 0, 0, 0, 0, 0, 0}, longDescriptor...)
	octets := 60_000
	described = append(described, make([]byte, octets)...)
	size := len(described) - 5
	copy(described[1:], []byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size), byte(octets >> 24), byte(octets >> 16), byte(octets >> 8), byte(octets)})
	for name, b := range map[string][]byte{
		"100,000 nulls": manyNulls, "30,000 arrays of 255 nulls": arrays, "an array whose elements share 60,000 octets of descriptor": described,
	} {
		v := mustRead(t, b)
		if n := testing.AllocsPerRun(3, func() {
			if err := v.Check(); err != nil {
				t.Fatal(err)
			}
			items := v.Items()
			for item, ok := items.Next(); ok; item, ok = items.Next() {
				_ = item.Descriptor()
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestAccessorsRefuseOtherTypes(t *testing.T) {
	for _, wire := range []string{"\x40", "\x00\x53\x24\x41", "\x00\x53\x24\xa1\x01a", "\x00\x53\x24\x45"} {
		v := mustRead(t, []byte(wire))
		_, isBool := v.Bool()
		_, isUint := v.Uint64()
		_, isInt := v.Int64()
		_, isFloat := v.Float64()
		_, isChar := v.Char()
		_, isTime := v.Timestamp()
		_, isUUID := v.UUID()
		_, isBinary := v.Binary()
		_, isText := v.Text()
		_, isSymbol := v.Symbol()
		_, isDecimal := v.Decimal()
		if isBool || isUint || isInt || isFloat || isChar || isTime || isUUID || isBinary || isText || isSymbol || isDecimal {
			t.Errorf("% x is read as something else", wire)
		}
		if _, ok := v.Lookup("a"); ok || v.At(0).Type() != TypeNone || v.Len() != 0 {
			t.Errorf("% x has items", wire)
		}
	}
	if _, ok := mustRead(t, AppendUlong(nil, math.MaxUint64)).Int64(); ok {
		t.Error("2^64-1 fits an int64")
	}
	if s, ok := (Value{}).Text(); ok || s != nil || !(Value{}).IsNull() {
		t.Error("no value is a string")
	}
}

func TestSymbolsOfAField(t *testing.T) {
	for _, c := range []struct {
		v    Value
		want []string
	}{
		{Value{}, nil},
		{mustRead(t, AppendNull(nil)), nil},
		{mustRead(t, AppendSymbol(nil, "a")), []string{"a"}},
		{mustRead(t, AppendSymbols(nil)), nil},
		{mustRead(t, AppendSymbols(nil, "a", "b")), []string{"a", "b"}},
		{mustRead(t, AppendSymbols(nil, "a", strings.Repeat("b", 256))), []string{"a", strings.Repeat("b", 256)}},
	} {
		var got []string
		symbols := c.v.Symbols()
		for s, ok := symbols.Next(); ok; s, ok = symbols.Next() {
			got = append(got, string(s))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func FuzzReadValue(f *testing.F) {
	for _, s := range []string{
		"\x40", "\x56\x01", "\x70\x00\x00\x00\x01", "\xa1\x01a", "\xb3\x00\x00\x00\x01a", "\xc0\x03\x02\x40\x41", "\xc1\x05\x02\xa1\x01k\x41",
		"\xe0\x04\x02\x50\x01\x02", "\xe0\x02\xff\x40", "\xf0\x00\x00\x00\x05\x80\x00\x00\x00\x40", "\x00\xa3\x01x\x00\x44\x41", "\xe0\x07\x02\x00\x53\x24\x50\x01\x02",
	} {
		f.Add([]byte(s))
	}
	f.Add(nested(maxDepth + 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, rest, err := ReadValue(b)
		if err != nil {
			return
		}
		if again := v.Append(nil); !bytes.Equal(again, b[:len(b)-len(rest)]) {
			t.Fatalf("read % x, written % x", b[:len(b)-len(rest)], again)
		}
		_, _ = v.Lookup("k")
		_ = v.At(1)
		if v.Check() != nil {
			return
		}
		compareWalk(t, v)
	})
}

// compareWalk walks through a value that Check has passed: all of it can be read, and each part is a value
// itself.
func compareWalk(t *testing.T, v Value) {
	if v.Type() == TypeNone {
		t.Fatal("a value that is none")
	}
	again, _, err := ReadValue(v.Append(nil))
	if err != nil || !again.Equal(v) {
		t.Fatalf("a part % x is no value by itself: %v", v.Append(nil), err)
	}
	for v.Type() == TypeDescribed {
		v = v.Underlying()
	}
	items, n := v.Items(), 0
	for item, ok := items.Next(); ok; item, ok = items.Next() {
		n++
		compareWalk(t, item)
	}
	if items.Err() != nil || n != v.Len() {
		t.Fatalf("%d of %d items: %v", n, v.Len(), items.Err())
	}
}

func TestSizeAndConstants(t *testing.T) {
	constant := 0
	for _, b := range [][]byte{
		{codeNull}, {codeTrue}, {codeUint0}, {codeUlong0}, {codeList0}, {codeBoolean, 1}, AppendString(nil, ""), AppendString(nil, strings.Repeat("x", 300)),
		AppendUlong(nil, 1<<40), AppendData(nil, []byte("b")), AppendUUID(nil, [16]byte{}), {0, codeSmallUlong, 7, codeTrue},
	} {
		v := MustValue(b)
		if v.Size() != len(b) {
			t.Errorf("% x: size %d", b, v.Size())
		}
		if v.IsConstant() != (len(b) == 1) {
			t.Errorf("% x is constant: %t", b, v.IsConstant())
		} else if v.IsConstant() {
			constant++
		}
	}
	if none := (Value{}); constant != 5 || none.Size() != 1 || none.IsConstant() {
		t.Errorf("%d constants", constant)
	}
}
