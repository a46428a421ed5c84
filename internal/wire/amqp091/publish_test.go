package amqp091

import (
	"strings"
	"testing"
)

// TestPublishReadsNamesOfEveryLength: a short string has 0 to 255 bytes, and a byte cannot hold
// what 255 and the length's own byte add up to.
func TestPublishReadsNamesOfEveryLength(t *testing.T) {
	for n := range maxShortstr + 1 {
		name := strings.Repeat("n", n)
		for _, sent := range []BasicPublish{
			{RoutingKey: name}, {Exchange: name}, {Exchange: name, RoutingKey: name, Mandatory: true},
		} {
			buf := AppendMethod(nil, 1, sent)
			payload := buf[frameHeaderSize : len(buf)-1]
			m, err := DecodeMethod(payload)
			if err != nil {
				t.Fatal(err)
			}
			checkHotForms(t, payload, m, err)
			_, args, _ := SplitMethod(payload)
			p, err := ParsePublish(args)
			if err != nil || string(p.Exchange) != sent.Exchange || string(p.RoutingKey) != sent.RoutingKey || p.Mandatory != sent.Mandatory {
				t.Errorf("%d bytes: got %q, %q, %v", n, p.Exchange, p.RoutingKey, err)
			}
		}
	}
}
