package broker

import (
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

// BR-3.5, BR-8.5: work for each key of a message, such as a permission check, is done once for equal keys.
func TestBR_8_5_EqualKeysAreOneKey(t *testing.T) {
	c := open(t, Options{})
	cc := make(amqp091.Array, 1000)
	for i := range cc {
		cc[i] = "k"
	}
	cc = append(cc, "other")
	p := &Publication{Exchange: []byte("amq.topic"), Key: []byte("k"), Props: amqp091.Props{
		Headers: amqp091.AppendTable(nil, amqp091.Table{{Key: "CC", Value: cc}, {Key: "BCC", Value: amqp091.Array{"other", "hidden"}}})[4:],
	}}
	if err := c.Check(p); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, key := range p.DistinctKeys() {
		got = append(got, string(key))
	}
	if len(got) != 3 || got[0] != "k" || got[1] != "other" || got[2] != "hidden" {
		t.Errorf("keys are %q", got)
	}
	if n := len(p.MoreKeys()); n != 1003 {
		t.Errorf("%d keys were given, want 1003", n)
	}
}
