package message

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

func TestDelay(t *testing.T) {
	for _, test := range []struct {
		value any
		want  int64
	}{
		{int8(5), 5}, {uint8(200), 200}, {int16(5), 5}, {uint16(50000), 50000}, {int32(5), 5}, {uint32(math.MaxUint32), math.MaxUint32}, {int64(5), 5},
		{int64(math.MaxInt64), math.MaxInt64}, {int8(-5), 0}, {int64(math.MinInt64), 0}, {int64(0), 0},
		{"5000", 5000}, {"+5", 5}, {"-5", 0}, {"0", 0}, {"9223372036854775808", math.MaxInt64}, {"-" + strings.Repeat("9", 200), 0}, {[]byte("70"), 70},
		{float32(2.5), 2}, {1e3, 1000}, {0.9, 0}, {-3.5, 0}, {float64(math.MaxInt64), math.MaxInt64}, {math.Inf(1), math.MaxInt64}, {math.Inf(-1), 0}, {math.NaN(), 0},
		{true, 0}, {nil, 0}, {amqp091.Timestamp(7), 0}, {amqp091.Decimal{Value: 7}, 0}, {amqp091.Table{}, 0}, {amqp091.Array{int32(7)}, 0},
	} {
		headers := amqp091.AppendTable(nil, amqp091.Table{{Key: "a", Value: int32(9)}, {Key: "x-delay", Value: test.value}})[4:]
		if ms, err := Delay(headers); ms != test.want || err != nil {
			t.Errorf("x-delay %T %v is a delay of %d, %v; want %d", test.value, test.value, ms, err, test.want)
		}
	}
	if ms, err := Delay(nil); ms != 0 || err != nil {
		t.Errorf("without headers: %d, %v", ms, err)
	}
	for _, text := range []string{"", "soon", "5 s", " 5", "1.5", "0x10", "1_000", strings.Repeat("x", 1000)} {
		headers := amqp091.AppendTable(nil, amqp091.Table{{Key: "x-delay", Value: text}})[4:]
		want := fmt.Sprintf("invalid message: header x-delay is '%.64s', and not a number of milliseconds", text)
		if ms, err := Delay(headers); ms != 0 || err == nil || err.Error() != want {
			t.Errorf("x-delay %q is a delay of %d, %v; want %s", text, ms, err, want)
		}
	}
}

// Whatever the headers are, a delay is not negative.
func FuzzDelay(f *testing.F) {
	f.Add(amqp091.AppendTable(nil, amqp091.Table{{Key: "x-delay", Value: int64(7)}})[4:])
	f.Add(amqp091.AppendTable(nil, amqp091.Table{{Key: "x-delay", Value: "7"}})[4:])
	f.Add(amqp091.AppendTable(nil, amqp091.Table{{Key: "x-delay", Value: 1e300}})[4:])
	f.Add([]byte("\x07x-delayl\x00"))
	f.Fuzz(func(t *testing.T, headers []byte) {
		if ms, err := Delay(headers); ms < 0 || err != nil && ms != 0 {
			t.Errorf("a delay of %d, %v", ms, err)
		}
	})
}
