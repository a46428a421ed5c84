package routing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"bartleby.mq/internal/wire/amqp091"
	"bartleby.mq/internal/wire/erlterm"
)

// consistentHash sends each message to one destination, in proportion to the weights that its bindings give as their
// keys (BR-6.11).
//
// It uses weighted rendezvous hashing: each destination gets a score from the message's hash and its own, and the
// highest wins. Adding or removing a destination moves only its own share, and a weight costs no memory,
// which a ring of points does: a peer could ask for a thousand million of them.
type consistentHash struct {
	header   string // hash this header instead of the routing keys
	property string // hash this property
	list     []hashTarget
	at       map[string]int // the place of each name in list
}

type hashTarget struct {
	name        string
	destination Destination
	weight      float64
	seed        uint64
}

func newConsistentHash(args amqp091.Table) (*consistentHash, error) {
	t := &consistentHash{at: map[string]int{}}
	header, hasHeader := args.Get("hash-header")
	property, hasProperty := args.Get("hash-property")
	if hasHeader && hasProperty {
		return nil, errors.New("hash-header and hash-property are mutually exclusive")
	}
	if hasProperty {
		name, _ := property.(string)
		switch name {
		case "correlation_id", "message_id", "timestamp":
			t.property = name
		default:
			return nil, fmt.Errorf("Unsupported property: %s", printProperty(property)) //nolint:staticcheck // RabbitMQ's text
		}
	}
	if hasHeader {
		t.header, _ = header.(string)
	}
	return t, nil
}

func printProperty(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return erlterm.Format(v)
}

// Check wants an integer of at least 1 as the key.
func (t *consistentHash) Check(b *Binding) error {
	weight, ok := parseWeight(b.Key)
	if !ok {
		return fmt.Errorf("The binding key must be an integer: %s", erlterm.Format(b.Key)) //nolint:staticcheck // RabbitMQ's text
	}
	if weight < 1 {
		return errors.New("The binding key must be greater than 0") //nolint:staticcheck // RabbitMQ's text
	}
	return nil
}

// parseWeight reads a decimal integer of any length; the key's 255 bytes bound it well below infinity.
func parseWeight(key string) (float64, bool) {
	digits := strings.TrimLeft(key, "+-")
	if len(key)-len(digits) > 1 || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	weight, err := strconv.ParseFloat(key, 64)
	return weight, err == nil
}

// Add ignores a second binding of a destination (BR-6.11).
func (t *consistentHash) Add(b *Binding) {
	if _, ok := t.at[b.Name]; ok {
		return
	}
	t.at[b.Name] = len(t.list)
	weight, _ := parseWeight(b.Key)
	t.list = append(t.list, hashTarget{name: b.Name, destination: b.Destination, weight: weight, seed: fnv1a(fnvOffset, b.Name)})
}

// Remove takes the destination out whichever of its bindings goes, as RabbitMQ does.
func (t *consistentHash) Remove(b *Binding) {
	i, ok := t.at[b.Name]
	if !ok {
		return
	}
	last := len(t.list) - 1
	moved := t.list[last]
	t.list[i], t.list[last] = moved, hashTarget{}
	t.list = t.list[:last]
	t.at[moved.name] = i
	delete(t.at, b.Name)
}

func (t *consistentHash) Route(dst []Destination, m *Message) []Destination {
	if len(t.list) == 0 {
		return dst
	}
	h := t.hash(m)
	best, bestScore := 0, math.Inf(-1)
	for i := range t.list {
		// A uniform number in (0,1]: the largest are rounded to 1, and have the lowest score there is.
		u := (float64(mix(h^t.list[i].seed)>>11) + 0.5) / (1 << 53)
		if score := -t.list[i].weight / math.Log(u); score > bestScore {
			best, bestScore = i, score
		}
	}
	return append(dst, t.list[best].destination)
}

func (t *consistentHash) hash(m *Message) uint64 {
	h := uint64(fnvOffset)
	switch {
	case t.header != "":
		if _, value, ok := m.header(t.header); ok {
			h = fnv1a(h, value)
		}
	case t.property == "correlation_id":
		h = fnv1a(h, m.CorrelationID)
	case t.property == "message_id":
		h = fnv1a(h, m.MessageID)
	case t.property == "timestamp":
		if m.HasTimestamp {
			var seconds [8]byte
			binary.BigEndian.PutUint64(seconds[:], m.Timestamp)
			h = fnv1a(h, seconds[:])
		}
	default:
		return hashKeys(m)
	}
	return mix(h)
}
