package office

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/wire/amqp091"
)

var benchLetters = flag.Int("letters", 100_000, "letters of the benchmark, in 10 queues")

// BenchmarkOffice measures what docs/internals/office.md promises, with letters of 1 KiB of 200 groups on a disk. Its figures are
// metrics, not ns/op:
//
//	go test -run '^$' -bench Office -benchtime 1x ./internal/run/office -letters 1000000
func BenchmarkOffice(b *testing.B) {
	const queues, groups = 10, 200
	node, err := broker.Open(broker.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer node.Close() //nolint:errcheck // the directory goes
	if err := node.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		b.Fatal(err)
	}
	c := node.As("guest", "/")
	for i := range queues {
		for _, q := range []struct {
			name string
			args amqp091.Table
		}{
			{fmt.Sprint("dead", i), nil},
			{fmt.Sprint("work", i), amqp091.Table{{Key: "x-dead-letter-exchange", Value: ""}, {Key: "x-dead-letter-routing-key", Value: fmt.Sprint("dead", i)}, {Key: "x-message-ttl", Value: int32(0)}}},
		} {
			if _, err := c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(q.name), Durable: true, Arguments: q.args}); err != nil {
				b.Fatal(err)
			}
		}
	}
	body := []byte(strings.Repeat("x", 1<<10))
	for i := range *benchLetters {
		l := amqp091.PropertyList{DeliveryMode: new(uint8(2)), Headers: amqp091.Table{
			{Key: "tenant", Value: fmt.Sprint("t", i%7)},
			{Key: "x-exception-message", Value: fmt.Sprintf("no %c%c for order %d", 'a'+i/queues%(groups/queues), 'q', i)},
		}}
		raw := amqp091.AppendPropsFrom(nil, l)
		props, err := amqp091.ParseProps(raw)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.PublishOne(&broker.Publication{Key: fmt.Append(nil, "work", i%queues), Raw: raw, Props: props, Body: [][]byte{body}, Size: len(body)}); err != nil {
			b.Fatal(err)
		}
	}
	for busy := true; busy; {
		busy = false
		for _, q := range node.CountQueues() {
			busy = busy || q.Counts.Unsettled || q.Counts.Transit > 0
		}
		time.Sleep(10 * time.Millisecond)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	f, err := New(Options{Broker: node})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	inbox := func() (GroupsAnswer, time.Duration) {
		began := time.Now()
		for {
			a, err := f.Groups(context.Background(), GroupsRequest{})
			if err != nil {
				b.Fatal(err)
			}
			if !a.Reading {
				return a, time.Since(began)
			}
		}
	}
	for b.Loop() {
		a, first := inbox()
		if a.Letters != *benchLetters || a.Total != groups {
			b.Fatalf("%d letters in %d groups", a.Letters, a.Total)
		}
		b.ReportMetric(first.Seconds(), "s/first-inbox")
		_, again := inbox()
		b.ReportMetric(again.Seconds()*1000, "ms/inbox")
		if err := c.Take("dead0", 100, broker.AckRemoves, func(*broker.Shown) (bool, error) { return true, nil }); err != nil {
			b.Fatal(err)
		}
		_, again = inbox()
		b.ReportMetric(again.Seconds()*1000, "ms/inbox-after-100-left")
		b.ReportMetric(float64(max(heap(), before)-before)/float64(*benchLetters), "B/letter")
		sample := a.Items[len(a.Items)-1].Sample
		q, err := c.Find(sample.Queue, topology.Read)
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if _, err := f.Letter(c, q, sample.ID, 64<<10, false); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds()*1000, "ms/letter")
		for name, filters := range map[string]map[string][]string{"header": {"where": {"header.tenant=none"}}, "error": {"error": {"card .* declined"}}, "body": {"body": {"needle"}}} {
			query, err := letter.ParseQuery("/", filters, f.now())
			if err != nil {
				b.Fatal(err)
			}
			began, examined := time.Now(), 0
			done := make(chan int, queues)
			room := make(chan struct{}, runtime.GOMAXPROCS(0))
			for i := range queues {
				go func() {
					room <- struct{}{}
					defer func() { <-room }()
					q, _ := c.Find(message.QueueName(fmt.Sprint("dead", i)), topology.Read)
					end, _ := f.Letters(context.Background(), q, LettersRequest{Query: query, Oldest: true}, func(*Row) bool { return true }, nil)
					done <- end.Examined
				}()
			}
			for range queues {
				examined += <-done
			}
			b.ReportMetric(float64(examined)/time.Since(began).Seconds(), "letters/s-by-"+name)
		}
	}
}

// BenchmarkReplay sends letters of 1 KiB back to their origin with a job. ns/op is per letter.
//
//	go test -run '^$' -bench Replay -benchtime 200000x ./internal/run/office -cpuprofile cpu.out
func BenchmarkReplay(b *testing.B) {
	node, err := broker.Open(broker.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer node.Close() //nolint:errcheck // the directory goes
	if err := node.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		b.Fatal(err)
	}
	c := node.As("guest", "/")
	dead := amqp091.Table{{Key: "x-dead-letter-exchange", Value: ""}, {Key: "x-dead-letter-routing-key", Value: "dead"}}
	for name, args := range map[string]amqp091.Table{"dead": nil, "work": dead} {
		if _, err := c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(name), Durable: true, Arguments: args}); err != nil {
			b.Fatal(err)
		}
	}
	body := []byte(strings.Repeat("x", 1<<10))
	raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{DeliveryMode: new(uint8(2)), Headers: amqp091.Table{{Key: "tenant", Value: "t"}}})
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		b.Fatal(err)
	}
	for range b.N {
		if _, err := c.PublishOne(&broker.Publication{Key: []byte("work"), Raw: raw, Props: props, Body: [][]byte{body}, Size: len(body)}); err != nil {
			b.Fatal(err)
		}
	}
	await := func(name string) {
		for {
			for _, q := range node.CountQueues() {
				if string(q.Queue.Name) == name && q.Counts.Ready == b.N {
					return
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if _, err := node.By("").Do(declare.PutPolicy{VHost: "/", Policy: topology.PolicyDecl{Name: "die", Pattern: "^work$", Definition: topology.Definition{"max-length": int64(0)}}}); err != nil {
		b.Fatal(err)
	}
	await("dead")
	if _, err := node.By("").Do(declare.DeletePolicy{VHost: "/", Name: "die"}); err != nil {
		b.Fatal(err)
	}
	f, err := New(Options{Broker: node})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	jobs := f.Jobs
	request := &Request{Action: letters.Replay, VHost: "/", Queue: "dead"}
	plan, err := jobs.Dry(context.Background(), c, request)
	if err != nil {
		b.Fatal(err)
	}
	request.Token, request.Count = plan.Token, &plan.Count
	b.ResetTimer()
	if _, err := jobs.Start(context.Background(), c, request); err != nil {
		b.Fatal(err)
	}
	await("work")
}
