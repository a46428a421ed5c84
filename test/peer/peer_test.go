package peer

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

// perNode is how many inputs a node hears before it is killed, stopped and started again.
const perNode = 50

// What inputs there are to begin with.
var (
	seeds = flag.Uint64("seeds", 100, "how many inputs by chance to begin with")
	first = flag.Uint64("first", 0, "the number of the first of them")
)

// FuzzPeer says what the input stands for to a node.
func FuzzPeer(f *testing.F) {
	for i := range *seeds {
		f.Add(chance(*first+i, 3000))
	}
	var g group
	f.Cleanup(func() {
		if err := g.end(); err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, input []byte) {
		if err := g.hear(input); err != nil {
			t.Fatal(err)
		}
	})
}

// chance are bytes that follow from a number.
func chance(seed uint64, n int) (b []byte) {
	rng := rand.New(rand.NewPCG(seed, 0))
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, rng.Uint64())
	}
	return b
}

// group is a node with the inputs that it has heard.
type group struct {
	node   *node
	inputs [][]byte
}

// hear lets the node hear one more, and starts it again when it has heard many.
func (g *group) hear(input []byte) (err error) {
	if g.node == nil {
		fs, err := disk()
		if err != nil {
			return err
		}
		if g.node, err = start(fs); err != nil {
			return fmt.Errorf("the first start: %w", err)
		}
	}
	s := generate(input)
	vhost := fmt.Sprintf("v%d", len(g.inputs))
	g.inputs = append(g.inputs, input)
	if err = g.say(&s, vhost); err != nil {
		g.node = nil // it may hang
		g.inputs = nil
		return err
	}
	if len(g.inputs) == perNode {
		return g.end()
	}
	return nil
}

// say says a script in a virtual host of its own, so that scripts have nothing to do with
// each other.
func (g *group) say(s *script, vhost string) error {
	if err := g.node.vhost(vhost, s); err != nil {
		return err
	}
	if err := g.node.keep(); err != nil {
		return err
	}
	if err := g.node.play(s, vhost); err != nil {
		return err
	}
	if err := g.node.log.fault(); err != nil {
		return err
	}
	return g.node.served()
}

// end looks whether the node starts again. If not it finds out which input it was.
func (g *group) end() error {
	n, inputs := g.node, g.inputs
	if n == nil {
		return nil
	}
	g.node, g.inputs = nil, nil
	percent := generate(inputs[len(inputs)-1]).percent
	err := n.survives(percent)
	if err == nil || len(inputs) == 1 {
		return err
	}
	for _, input := range inputs {
		var alone group
		failed := alone.hear(input)
		if failed == nil {
			failed = alone.end()
		}
		if failed != nil {
			return fmt.Errorf("%w\nit is so with this input alone:\ngo test fuzz v1\n[]byte(%q)", failed, input)
		}
	}
	return fmt.Errorf("%w\nafter %d inputs, of which none does it alone", err, len(inputs))
}
