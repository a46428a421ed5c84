package routing

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
	"pgregory.net/rapid"
)

// equalAsGiven is what equal means for values of which nothing is in order (BR-6.9): tables have as many fields, and equal
// ones once they are sorted by their keys, where the first of those with one key counts.
func equalAsGiven(a, b any) bool {
	switch a := a.(type) {
	case amqp091.Array:
		b, ok := b.(amqp091.Array)
		return ok && slices.EqualFunc(a, b, equalAsGiven)
	case amqp091.Table:
		b, ok := b.(amqp091.Table)
		return ok && len(a) == len(b) && slices.EqualFunc(a.Sorted(), b.Sorted(), func(x, y amqp091.Field) bool {
			return x.Key == y.Key && equalAsGiven(x.Value, y.Value)
		})
	case []byte:
		b, ok := b.([]byte)
		return ok && bytes.Equal(a, b)
	}
	switch b.(type) {
	case amqp091.Array, amqp091.Table, []byte:
		return false
	}
	if i, ok := amqp091.Int64(a); ok {
		j, ok := amqp091.Int64(b)
		return ok && i == j
	}
	return a == b || float(a) == float(b)
}

// drawValue draws a value of few kinds with few names, so that many are equal and many keys come twice.
func drawValue(t *rapid.T, depth int) any {
	kind := rapid.IntRange(2, 5).Draw(t, "kind")
	if depth == 0 {
		kind = 0
	}
	switch kind {
	case 4:
		list := amqp091.Array{}
		for range rapid.IntRange(0, 2).Draw(t, "elements") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	case 5:
		table := amqp091.Table{}
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			table = append(table, drawField(t, depth))
		}
		return table
	}
	return rapid.SampledFrom([]any{nil, true, int8(1), int64(1), float32(1), 1.0, math.NaN(), "x", []byte("x")}).Draw(t, "value")
}

func drawField(t *rapid.T, depth int) amqp091.Field {
	return arg(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"), drawValue(t, depth-1))
}

// shuffled is the value with its tables in another order, those inside it too.
func shuffled(t *rapid.T, v any) any {
	switch v := v.(type) {
	case amqp091.Array:
		list := slices.Clone(v)
		for i := range list {
			list[i] = shuffled(t, list[i])
		}
		return list
	case amqp091.Table:
		table := slices.Clone(v)
		for i := range table {
			table[i].Value = shuffled(t, table[i].Value)
		}
		if len(table) > 1 {
			table = rapid.Permutation(table).Draw(t, "order")
		}
		return table
	}
	return v
}

// BR-6.9: the forms of values are equal where the values are, and finding them does not change the values.
func TestBR_6_9_EqualValuesHaveEqualForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		binding := drawValue(t, 3)
		header := shuffled(t, binding)
		if table, ok := header.(amqp091.Table); ok && rapid.Bool().Draw(t, "more") {
			header = append(table, drawField(t, 1))
		} else if rapid.Bool().Draw(t, "other") {
			header = drawValue(t, 3)
		}
		want, before := equalAsGiven(binding, header), amqp091.AppendValue(nil, binding)
		x, y := comparableForm(binding), comparableForm(header)
		if got := x != nil && bytes.Equal(x, y); got != want {
			t.Fatalf("the forms of %#v and %#v are equal: %v, as given: %v", binding, header, got, want)
		}
		if !bytes.Equal(before, amqp091.AppendValue(nil, binding)) {
			t.Fatalf("the binding has become %#v", binding)
		}
	})
}
