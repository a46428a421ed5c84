package amqp10

import "strconv"

// Format codes (1.6). The first four bits say how many octets follow, or how long the size is that says it (1.2).
const (
	codeNull       = 0x40
	codeTrue       = 0x41
	codeFalse      = 0x42
	codeUint0      = 0x43
	codeUlong0     = 0x44
	codeList0      = 0x45
	codeUbyte      = 0x50
	codeByte       = 0x51
	codeSmallUint  = 0x52
	codeSmallUlong = 0x53
	codeSmallInt   = 0x54
	codeSmallLong  = 0x55
	codeBoolean    = 0x56
	codeUshort     = 0x60
	codeShort      = 0x61
	codeUint       = 0x70
	codeInt        = 0x71
	codeFloat      = 0x72
	codeChar       = 0x73
	codeDecimal32  = 0x74
	codeUlong      = 0x80
	codeLong       = 0x81
	codeDouble     = 0x82
	codeTimestamp  = 0x83
	codeDecimal64  = 0x84
	codeDecimal128 = 0x94
	codeUUID       = 0x98
	codeBinary8    = 0xa0
	codeString8    = 0xa1
	codeSymbol8    = 0xa3
	codeBinary32   = 0xb0
	codeString32   = 0xb1
	codeSymbol32   = 0xb3
	codeList8      = 0xc0
	codeMap8       = 0xc1
	codeList32     = 0xd0
	codeMap32      = 0xd1
	codeArray8     = 0xe0
	codeArray32    = 0xf0
)

// A Type is a primitive type (1.6), or what stands for all described ones.
type Type uint8

// Types. TypeNone is that of the zero Value, which is none.
const (
	TypeNone Type = iota
	TypeNull
	TypeBoolean
	TypeUbyte
	TypeUshort
	TypeUint
	TypeUlong
	TypeByte
	TypeShort
	TypeInt
	TypeLong
	TypeFloat
	TypeDouble
	TypeDecimal32
	TypeDecimal64
	TypeDecimal128
	TypeChar
	TypeTimestamp
	TypeUUID
	TypeBinary
	TypeString
	TypeSymbol
	TypeList
	TypeMap
	TypeArray
	TypeDescribed
)

var typeNames = [...]string{
	"none", "null", "boolean", "ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long", "float", "double", "decimal32", "decimal64",
	"decimal128", "char", "timestamp", "uuid", "binary", "string", "symbol", "list", "map", "array", "described",
}

// String returns the name in the standard.
func (t Type) String() string { return choiceName(typeNames[:], uint64(t)) }

// choiceName is the name of a value of a type with few, or its number.
func choiceName(names []string, v uint64) string {
	if v < uint64(len(names)) {
		return names[v]
	}
	return strconv.FormatUint(v, 10)
}

// types are the types by format code; TypeNone for codes that no encoding has.
var types = [256]Type{
	codeNull: TypeNull, codeTrue: TypeBoolean, codeFalse: TypeBoolean, codeBoolean: TypeBoolean,
	codeUbyte: TypeUbyte, codeUshort: TypeUshort, codeUint0: TypeUint, codeSmallUint: TypeUint, codeUint: TypeUint,
	codeUlong0: TypeUlong, codeSmallUlong: TypeUlong, codeUlong: TypeUlong,
	codeByte: TypeByte, codeShort: TypeShort, codeSmallInt: TypeInt, codeInt: TypeInt, codeSmallLong: TypeLong, codeLong: TypeLong,
	codeFloat: TypeFloat, codeDouble: TypeDouble,
	codeDecimal32: TypeDecimal32, codeDecimal64: TypeDecimal64, codeDecimal128: TypeDecimal128,
	codeChar: TypeChar, codeTimestamp: TypeTimestamp, codeUUID: TypeUUID,
	codeBinary8: TypeBinary, codeBinary32: TypeBinary, codeString8: TypeString, codeString32: TypeString,
	codeSymbol8: TypeSymbol, codeSymbol32: TypeSymbol,
	codeList0: TypeList, codeList8: TypeList, codeList32: TypeList, codeMap8: TypeMap, codeMap32: TypeMap,
	codeArray8: TypeArray, codeArray32: TypeArray,
}

// fixedWidth is how many octets a value with the code has, or -1 if a size says it.
func fixedWidth(code byte) int {
	switch code >> 4 {
	case 0x4:
		return 0
	case 0x5:
		return 1
	case 0x6:
		return 2
	case 0x7:
		return 4
	case 0x8:
		return 8
	case 0x9:
		return 16
	}
	return -1
}

// sizeWidth is how many octets the size has that stands before a value with the code, and the count of
// compound values and arrays too; 0 for fixed widths.
func sizeWidth(code byte) int {
	switch code >> 4 {
	case 0xa, 0xc, 0xe:
		return 1
	case 0xb, 0xd, 0xf:
		return 4
	}
	return 0
}
