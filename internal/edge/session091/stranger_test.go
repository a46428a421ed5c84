package session091

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

// Whoever is not let in yet has the node look at 8 KiB, and of tables in it makes a few dozen values, however they are nested.
func TestWhatAStrangerSendsBecomesFewValues(t *testing.T) {
	header := binary.BigEndian.AppendUint32([]byte{amqp091.FrameMethod, 0, 0}, 128<<10)
	if _, _, err := amqp091.NextFrame(header, openFrameMax-amqp091.FrameOverhead); err == nil {
		t.Error("a frame of 128 KiB is waited for")
	}

	nested := amqp091.Table{{Key: "x", Value: int64(1)}}
	for range amqp091.MaxDepth - 3 {
		nested = amqp091.Table{{Key: "t", Value: nested}}
	}
	wide := make(amqp091.Array, 500)
	for what, properties := range map[string]func(i int) amqp091.Field{
		"nested":                func(i int) amqp091.Field { return amqp091.Field{Key: fmt.Sprint("k", i), Value: nested} },
		"nested capabilities":   func(int) amqp091.Field { return amqp091.Field{Key: "capabilities", Value: nested} },
		"wide":                  func(i int) amqp091.Field { return amqp091.Field{Key: fmt.Sprint("k", i), Value: wide} },
		"many small ones":       func(i int) amqp091.Field { return amqp091.Field{Key: fmt.Sprint("k", i), Value: true} },
		"the same known ones":   func(int) amqp091.Field { return amqp091.Field{Key: "product", Value: "p"} },
		"known ones of no text": func(int) amqp091.Field { return amqp091.Field{Key: "version", Value: nested} },
		"texts": func(i int) amqp091.Field {
			return amqp091.Field{Key: fmt.Sprint("k", i), Value: strings.Repeat("x", 100)}
		},
	} {
		var table amqp091.Table
		for i := 0; len(amqp091.AppendTable(nil, table)) < openFrameMax-1000; i++ {
			table = append(table, properties(i))
		}
		frame := amqp091.AppendMethod(nil, 0, amqp091.ConnectionStartOk{ClientProperties: table, Mechanism: "PLAIN"})
		_, args, _ := amqp091.SplitMethod(frame[7 : len(frame)-1])
		var k propertyKeeper
		m, err := amqp091.DecodeStartOk(args, k.keep)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if n, most := values(m.ClientProperties), maxKnownProperties*maxCapabilities/8+maxOtherProperties; n > most {
			t.Errorf("%s: %d values, want %d at most", what, n, most)
		}
		if len(m.ClientProperties) > maxKnownProperties+maxOtherProperties {
			t.Errorf("%s: %d properties are kept", what, len(m.ClientProperties))
		}
	}
}

// values counts what a value is made of.
func values(v any) (n int) {
	switch v := v.(type) {
	case amqp091.Table:
		for _, f := range v {
			n += 1 + values(f.Value)
		}
	case amqp091.Array:
		for _, e := range v {
			n += 1 + values(e)
		}
	}
	return n
}
