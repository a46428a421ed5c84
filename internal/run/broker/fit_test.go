package broker

import (
	"fmt"
	"strings"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

// Properties fit whatever their headers are, and what has room stays: of x-death the latest entries.
func TestFitProps(t *testing.T) {
	const limit = 4096 - 20
	deaths := func(n int) amqp091.Array {
		var list amqp091.Array
		for i := range n {
			list = append(list, amqp091.Table{{Key: "queue", Value: fmt.Sprintf("q%d", i)}, {Key: "reason", Value: strings.Repeat("r", 100)}})
		}
		return list
	}
	var many amqp091.Table
	for i := range 3000 {
		many = append(many, amqp091.Field{Key: fmt.Sprintf("h%04d", i), Value: int32(i)})
	}
	long := strings.Repeat("n", 255)
	for name, c := range map[string]struct {
		headers amqp091.Table
		left    string // the names, with commas between
		deaths  int    // entries that stay; -1: some
		kept    []string
	}{
		"the oldest deaths": {amqp091.Table{{Key: "a", Value: strings.Repeat("x", 900)}, {Key: "x-death", Value: deaths(60)}, {Key: "x-first-death-queue", Value: "q"}, {Key: "z", Value: "1"}},
			"x-death", -1, []string{"a", "x-first-death-queue", "z"}},
		"what never fits, before any death": {amqp091.Table{{Key: "large", Value: strings.Repeat("x", 5000)}, {Key: "x-death", Value: deaths(5)}}, "large", 5, []string{"x-death"}},
		"the largest, when deaths are not enough": {amqp091.Table{{Key: "a", Value: strings.Repeat("x", 1100)}, {Key: "b", Value: strings.Repeat("x", 1600)}, {Key: "c", Value: strings.Repeat("x", 1000)}, {Key: "x-death", Value: deaths(9)}},
			"b,x-death", 1, []string{"a", "c"}},
		"many":      {many, "h0000,", 0, nil},
		"long name": {amqp091.Table{{Key: long, Value: strings.Repeat("x", 5000)}}, long, 0, nil},
		"no array":  {amqp091.Table{{Key: "x-death", Value: strings.Repeat("x", 5000)}}, "x-death", 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{ContentType: &long, MessageID: &long, Headers: c.headers})
			got := FitProps([]byte("before"), raw, limit)[len("before"):]
			if len(got) > limit {
				t.Errorf("%d bytes, want %d at most", len(got), limit)
			}
			p, err := amqp091.ParseProps(got)
			if err != nil || !amqp091.Canonical(&p) || string(p.MessageID) != long || string(p.ContentType) != long {
				t.Fatalf("%v, %q, %q", err, p.MessageID, p.ContentType)
			}
			headers, err := amqp091.DecodeTable(p.Headers)
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			entries := 0
			for _, f := range headers {
				switch list, _ := f.Value.(amqp091.Array); f.Key {
				case LeftOutHeader:
					for _, name := range list {
						left = append(left, name.(string))
					}
				case deathHeader:
					entries = len(list)
					if q, _ := list[0].(amqp091.Table).Get("queue"); q != "q0" {
						t.Errorf("the first death that stays is of %v, want the latest", q)
					}
				}
			}
			if text := strings.Join(left, ","); text != c.left && !(name == "many" && strings.HasPrefix(text, c.left) && strings.HasSuffix(text, " more")) {
				t.Errorf("left out are %q, want %q", text, c.left)
			}
			if entries != c.deaths && !(c.deaths < 0 && entries > 10 && entries < 60) {
				t.Errorf("%d deaths stay, want %d", entries, c.deaths)
			}
			for _, key := range c.kept {
				if _, ok := headers.Get(key); !ok {
					t.Errorf("%s is gone", key)
				}
			}
		})
	}
}
