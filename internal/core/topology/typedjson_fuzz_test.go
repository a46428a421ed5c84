package topology

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

// FuzzTypedTable: every table that comes from the wire survives the store byte for byte, and no JSON makes reading panic.
func FuzzTypedTable(f *testing.F) {
	f.Add(amqp091.AppendTable(nil, amqp091.Table{arg("a", amqp091.Array{int8(1), "\xff"}), arg("d", 1.5)})[4:])
	f.Add(amqp091.AppendTable(nil, amqp091.Table{arg("d", math.Float64frombits(0x7ff0000000000abc)), arg("f", math.Float32frombits(0x7fc00001))})[4:])
	f.Add([]byte(`[["k","S","v"],["a","A",[["l",1]]]]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var fromJSON TypedTable
		_ = json.Unmarshal(data, &fromJSON)
		table, err := amqp091.DecodeTable(data)
		if err != nil {
			return
		}
		text, err := json.Marshal(TypedTable(table))
		if err != nil {
			t.Fatal(err)
		}
		var back TypedTable
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if want, got := amqp091.AppendTable(nil, table), amqp091.AppendTable(nil, amqp091.Table(back)); !bytes.Equal(got, want) {
			t.Fatalf("%s became % x, want % x", text, got, want)
		}
	})
}
