// Command idle measures what a node costs while it has nothing to do: processor time in percent of one processor, of a fresh
// node, and of one with a hundred queues of both types and ten connections that consume from them.
//
//	go run ./test/idle [-for 60s] [-bin FILE]
//
// A node is measured after its first checkpoints, when what it did at its start is over.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

func main() {
	lasts := flag.Duration("for", time.Minute, "how long each node is measured")
	bin := flag.String("bin", "", "the binary; built if there is none")
	flag.Parse()
	if err := run(*bin, *lasts); err != nil {
		log.Fatal(err)
	}
}

func run(bin string, lasts time.Duration) error {
	dir, err := os.MkdirTemp("", "idle")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if bin == "" {
		if bin, err = node.Build(dir); err != nil {
			return err
		}
	}
	n, err := node.Start(node.Options{Bin: bin, Dir: dir, Config: "storage.checkpoint_interval = 2000\n"})
	if err != nil {
		return err
	}
	defer func() { _ = n.Stop() }()
	if err := measure(n, "nothing", lasts); err != nil {
		return err
	}
	const queues, connections = 100, 10
	for i := range connections {
		c, err := amqp.Dial("amqp://guest:guest@" + n.AMQP)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if err := consume(c, i*queues/connections, (i+1)*queues/connections); err != nil {
			return err
		}
	}
	return measure(n, fmt.Sprintf("%d queues, %d connections", queues, connections), lasts)
}

// consume declares the queues of these numbers, every other one a quorum queue, and consumes from them.
func consume(c *amqp.Connection, from, to int) error {
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	for i := from; i < to; i++ {
		kind := []string{"classic", "quorum"}[i%2]
		name := fmt.Sprintf("idle-%d", i)
		if _, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
			return err
		}
		if _, err := ch.Consume(name, "", false, false, false, false, nil); err != nil {
			return err
		}
	}
	return nil
}

func measure(n *node.Node, with string, lasts time.Duration) error {
	time.Sleep(5 * time.Second)
	before, err := n.Usage()
	if err != nil {
		return err
	}
	began := time.Now()
	time.Sleep(lasts)
	after, err := n.Usage()
	if err != nil {
		return err
	}
	took := time.Since(began)
	fmt.Printf("%-32s %.2f %% of a processor, %d goroutines, %d MiB\n", with, 100*float64(after.CPU-before.CPU)/float64(took), after.Goroutines, after.RSS>>20)
	return nil
}
