package convert_test

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/wire/amqp10"
)

// What has no room, or no value in AMQP 0-9-1, is left out, in memory that does not depend on how much of it there is: a client may send
// millions of such pairs in one message.
func TestWhatIsLeftOutTakesNoMemory(t *testing.T) {
	const many = 20_000
	nothing := []byte{0xe0, 2, 1, 0x40} // an array of one null: AMQP 0-9-1 has no such value
	list, at := amqp10.BeginList(nil)
	list = amqp10.EndCompound(append(list, bytes.Repeat(nothing, many)...), at, many)
	symbols, err := amqp10.AppendArray(nil, amqp10.MustValue(amqp10.AppendSymbol(nil, "k")))
	if err != nil {
		t.Fatal(err)
	}
	deaths, at := amqp10.BeginMap(nil)
	deaths = amqp10.EndCompound(slices.Concat(deaths,
		amqp10.AppendSymbol(nil, "queue"), amqp10.AppendString(nil, "q"), amqp10.AppendSymbol(nil, "reason"), amqp10.AppendSymbol(nil, "rejected"),
		amqp10.AppendSymbol(nil, "count"), amqp10.AppendUlong(nil, 1), amqp10.AppendSymbol(nil, "first-time"), amqp10.AppendTimestamp(nil, 1),
		amqp10.AppendSymbol(nil, "last-time"), amqp10.AppendTimestamp(nil, 1), amqp10.AppendSymbol(nil, "exchange"), amqp10.AppendString(nil, ""),
		amqp10.AppendSymbol(nil, "routing-keys"), symbols), at, 14) // no broker writes keys as symbols
	if deaths, err = amqp10.AppendArray(nil, amqp10.MustValue(deaths)); err != nil {
		t.Fatal(err)
	}
	key := amqp10.AppendSymbol(nil, "x-k")
	fill := func(n int) []byte { // the memory for headers is full when these bytes of 64 KiB are taken too
		return slices.Concat(amqp10.AppendSymbol(nil, "x-fill"), amqp10.AppendString(nil, strings.Repeat("f", 1<<16-7-n)))
	}
	for what, pairs := range map[string][]byte{
		"no room":            bytes.Repeat(append(slices.Clone(key), 0x40), 10*many),
		"no value":           slices.Concat(fill(0), bytes.Repeat(slices.Concat(key, nothing), many)),
		"no value in a list": slices.Concat(fill(5), key, list),
		"no deaths":          slices.Concat(fill(0), bytes.Repeat(append(amqp10.AppendSymbol(nil, "x-opt-deaths"), deaths...), many)),
	} {
		count := 0
		for rest := pairs; len(rest) > 0; count++ {
			if _, rest, err = amqp10.ReadValue(rest); err != nil {
				t.Fatal(err)
			}
		}
		b, at := amqp10.BeginMap(amqp10.AppendDescriptor(nil, amqp10.DescriptorMessageAnnotations))
		m := parse(t, amqp10.AppendData(amqp10.EndCompound(append(b, pairs...), at, count), nil))
		var in convert.Incoming
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := convert.FromAMQP10(&in, &m); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("%s: %d MiB", what, n>>20)
		}
	}
}
