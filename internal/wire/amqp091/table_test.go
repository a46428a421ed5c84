package amqp091

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawTable makes any table with at most depth tables inside each other.
func drawTable(t *rapid.T, depth int) Table {
	table := Table{}
	for range rapid.IntRange(0, 5).Draw(t, "fields") {
		table = append(table, Field{rapid.StringN(0, 20, 255).Draw(t, "key"), drawValue(t, depth)})
	}
	return table
}

// drawValue makes a value of any type. NaN is left out, for it equals nothing.
func drawValue(t *rapid.T, depth int) any {
	kinds := 15
	if depth > 0 {
		kinds = 17
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.Bool().Draw(t, "t")
	case 1:
		return rapid.Int8().Draw(t, "b")
	case 2:
		return rapid.Uint8().Draw(t, "B")
	case 3:
		return rapid.Int16().Draw(t, "s")
	case 4:
		return rapid.Uint16().Draw(t, "u")
	case 5:
		return rapid.Int32().Draw(t, "I")
	case 6:
		return rapid.Uint32().Draw(t, "i")
	case 7:
		return rapid.Int64().Draw(t, "l")
	case 8:
		return rapid.Float32().Draw(t, "f")
	case 9:
		return rapid.Float64().Draw(t, "d")
	case 10:
		return Decimal{rapid.Uint8().Draw(t, "scale"), rapid.Uint32().Draw(t, "value")}
	case 11:
		return rapid.String().Draw(t, "S")
	case 12:
		return rapid.SliceOf(rapid.Byte()).Draw(t, "x")
	case 13:
		return Timestamp(rapid.Uint64().Draw(t, "T"))
	case 14:
		return nil
	case 15:
		return drawTable(t, depth-1)
	}
	array := Array{}
	for range rapid.IntRange(0, 4).Draw(t, "elements") {
		array = append(array, drawValue(t, depth-1))
	}
	return array
}

func TestBR1_15_TablesComeThroughTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := drawTable(t, 3)
		b := AppendTable(nil, table)
		got, err := DecodeTable(b[4:])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(table, got); diff != "" {
			t.Fatalf("sent and received differ:\n%s", diff)
		}
	})
}

func TestBR1_15_TypesAndTheirNames(t *testing.T) {
	for _, c := range []struct {
		wire string
		want any
		name string
	}{
		{"t\x01", true, "bool"},
		{"t\x00", false, "bool"},
		{"t\x09", true, "bool"},
		{"b\xff", int8(-1), "byte"},
		{"B\xff", uint8(255), "unsignedbyte"},
		{"s\xff\xfe", int16(-2), "short"},
		{"u\xff\xfe", uint16(65534), "unsignedshort"},
		{"I\xff\xff\xff\xfe", int32(-2), "signedint"},
		{"i\xff\xff\xff\xfe", uint32(math.MaxUint32 - 1), "unsignedint"},
		{"l\xff\xff\xff\xff\xff\xff\xff\xfe", int64(-2), "long"},
		{"L\xff\xff\xff\xff\xff\xff\xff\xfe", int64(-2), "long"},
		{"f\x3f\xc0\x00\x00", float32(1.5), "float"},
		{"d\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5, "double"},
		{"D\x02\x00\x00\x01\x3a", Decimal{2, 314}, "decimal"},
		{"S\x00\x00\x00\x02\xff\x00", "\xff\x00", "longstr"},
		{"x\x00\x00\x00\x02\xff\x00", []byte{0xff, 0}, "binary"},
		{"T\x00\x00\x00\x00\x5f\x5e\x10\x00", Timestamp(1600000000), "timestamp"},
		{"V", nil, "void"},
		{"A\x00\x00\x00\x03Vt\x01", Array{nil, true}, "array"},
		{"F\x00\x00\x00\x03\x01kV", Table{{"k", nil}}, "table"},
	} {
		got, err := DecodeTable([]byte("\x01k" + c.wire))
		if err != nil {
			t.Errorf("%q: %v", c.wire, err)
			continue
		}
		if diff := cmp.Diff(Table{{"k", c.want}}, got); diff != "" {
			t.Errorf("%q: %s", c.wire, diff)
		}
		if name := TypeName(c.want); name != c.name {
			t.Errorf("TypeName(%v) = %q, want %q", c.want, name, c.name)
		}
	}
}

func TestDL3_5_Integers(t *testing.T) {
	for _, v := range []any{int8(7), uint8(7), int16(7), uint16(7), int32(7), uint32(7), int64(7)} {
		if n, ok := Int64(v); n != 7 || !ok {
			t.Errorf("Int64(%T) = %d, %t", v, n, ok)
		}
	}
	for _, v := range []any{Timestamp(7), Decimal{0, 7}, 7.0, float32(7), "7", true, nil, Array{}, Table{}, []byte{7}} {
		if _, ok := Int64(v); ok {
			t.Errorf("Int64 takes a %s", TypeName(v))
		}
	}
}

func TestTableErrors(t *testing.T) {
	for _, c := range []struct {
		name, wire string
		want       error
	}{
		{"key past the end", "\x05k", ErrTruncated},
		{"no type", "\x01k", ErrTruncated},
		{"unknown type", "\x01kZ\x00", ErrFieldType},
		{"fixed value past the end", "\x01kI\x00\x00\x00", ErrTruncated},
		{"length past the end", "\x01kS\x00\x00", ErrTruncated},
		{"announced length past the end", "\x01kS\xff\xff\xff\xff", ErrTruncated},
		{"table past the end", "\x01kF\xff\xff\xff\xff", ErrTruncated},
		{"error in a table", "\x01kF\x00\x00\x00\x03\x01kZ", ErrFieldType},
		{"error in an array", "\x01kA\x00\x00\x00\x03t\x01\x00", ErrFieldType},
		{"array element past the end", "\x01kA\x00\x00\x00\x01t", ErrTruncated},
		{"key not UTF-8", "\x01\xffV", ErrMalformedUTF8},
	} {
		if _, err := DecodeTable([]byte(c.wire)); !errors.Is(err, c.want) {
			t.Errorf("%s: DecodeTable: got error %v, want %v", c.name, err, c.want)
		}
		if _, err := checkTable([]byte(c.wire), 0); !errors.Is(err, c.want) {
			t.Errorf("%s: checkTable: got error %v, want %v", c.name, err, c.want)
		}
	}
}

// nested returns the content of a table with n tables or arrays in all.
func nested(n int, typ byte) []byte {
	var b []byte
	for range n - 1 {
		inner := append([]byte{typ}, byte(len(b)>>24), byte(len(b)>>16), byte(len(b)>>8), byte(len(b)))
		inner = append(inner, b...)
		if typ == 'F' {
			inner = append([]byte{0}, inner...)
		}
		b = inner
	}
	if typ == 'A' {
		b = append([]byte{0}, b...)
	}
	return b
}

func TestNestingHasALimit(t *testing.T) {
	for _, typ := range []byte("FA") {
		if _, err := DecodeTable(nested(maxDepth, typ)); err != nil {
			t.Errorf("%c: %d deep: %v", typ, maxDepth, err)
		}
		if _, err := DecodeTable(nested(maxDepth+1, typ)); !errors.Is(err, ErrTooDeep) {
			t.Errorf("%c: %d deep: got error %v", typ, maxDepth+1, err)
		}
		if _, err := checkTable(nested(3000, typ), 0); !errors.Is(err, ErrTooDeep) {
			t.Errorf("%c: checkTable of 3000 deep: got error %v", typ, err)
		}
	}
}

func TestDL6_15_SortedKeepsTheFirstAndTheInside(t *testing.T) {
	inner := Table{{"z", nil}, {"a", nil}, {"z", true}}
	table := Table{{"b", "1"}, {"a", inner}, {"b", "2"}, {"B", "3"}, {"", "4"}}
	before := append(Table{}, table...)
	want := Table{{"", "4"}, {"B", "3"}, {"a", inner}, {"b", "1"}}
	if diff := cmp.Diff(want, table.Sorted()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, table); diff != "" {
		t.Errorf("Sorted changed its receiver:\n%s", diff)
	}
	if v, ok := table.Get("b"); v != "1" || !ok {
		t.Errorf("Get of a key twice there: %v, %t", v, ok)
	}
	if _, ok := table.Get("c"); ok {
		t.Error("Get finds a key that is not there")
	}
}

func TestEncodingWhatIsNoFieldTypePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an int, whose width says nothing, was encoded")
		}
	}()
	AppendTable(nil, Table{{"k", 1}})
}

func FuzzDecodeTable(f *testing.F) {
	f.Add(AppendTable(nil, Table{{"a", int32(1)}, {"b", Array{"s", nil, Table{{"c", 1.5}}}}})[4:])
	f.Add(nested(5, 'F'))
	f.Add([]byte("\x01kL\x00\x00\x00\x00\x00\x00\x00\x01\x01kt\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := DecodeTable(b)
		if _, checkErr := checkTable(b, 0); !errors.Is(checkErr, err) {
			t.Fatalf("DecodeTable says %v, checkTable says %v", err, checkErr)
		}
		fields := 0
		RangeHeaders(b, func(key []byte, typ byte, value []byte) bool {
			fields++
			if _, err2 := DecodeValue(typ, value); err == nil && err2 != nil {
				t.Fatalf("key %q: %v", key, err2)
			}
			return true
		})
		respellFields(bytes.Clone(b))
		if err != nil {
			return
		}
		if fields != len(table) {
			t.Fatalf("RangeHeaders has %d fields, DecodeTable %d", fields, len(table))
		}
		wire := AppendTable(nil, table)
		if len(wire)-4 != len(b) {
			t.Fatalf("decoded %d bytes, encoded %d", len(b), len(wire)-4)
		}
		again, err := DecodeTable(wire[4:])
		if err != nil {
			t.Fatal(err)
		}
		if twice := AppendTable(nil, again); !bytes.Equal(wire, twice) {
			t.Fatalf("encoded % x, then % x", wire, twice)
		}
	})
}

func TestRangeArray(t *testing.T) {
	array := Array{"a", int32(-1), nil, Array{true}, Table{{"k", uint8(1)}}}
	b := AppendValue(nil, array)[5:]
	got := Array{}
	RangeArray(b, func(typ byte, value []byte) bool {
		v, err := DecodeValue(typ, value)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, v)
		return true
	})
	if diff := cmp.Diff(array, got); diff != "" {
		t.Error(diff)
	}
	for n := range len(b) { // ends where it is cut
		RangeArray(b[:n], func(byte, []byte) bool { return true })
	}
	calls := 0
	RangeArray(b, func(byte, []byte) bool { calls++; return calls < 2 })
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}
