// Command letters measures what the Dead Letter Office promises of very many letters: how soon the inbox is complete, what a letter and
// a search take, and what it costs to send them all back, beside what their deaths cost and what somebody else notices.
//
//	go run ./test/letters [-letters 1000000] [-limit] [-bin FILE] [-dir DIR]
//
// The letters are of 1 KiB, persistent, in ten classic queues, of 200 groups. A consumer rejects them one by one; with -limit they die all at
// once of a limit that a policy sets to nothing, which is the cheapest death. The node is then restarted, twice: for an inbox with the
// pages of its files in memory, and for one without, if the system lets this process drop them.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/bystander"
	"bartleby.mq/test/node"
)

const (
	queues = 10
	groups = 200
	size   = 1 << 10
)

func main() {
	letters := flag.Int("letters", 1_000_000, "how many")
	bin := flag.String("bin", "", "the binary; built if there is none")
	limit := flag.Bool("limit", false, "they die of a limit")
	dir := flag.String("dir", "", "where the data lies meanwhile; a temporary directory if there is none")
	flag.Parse()
	if err := run(*bin, *dir, *letters, *limit); err != nil {
		log.Fatal(err)
	}
}

// bench is a node that is being measured.
type bench struct {
	*node.Node
	letters int
	byLimit bool
	options node.Options
}

func run(bin, dir string, letters int, limit bool) (err error) {
	if dir, err = os.MkdirTemp(dir, "letters"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if bin == "" {
		if bin, err = node.Build(dir); err != nil {
			return err
		}
	}
	b := &bench{letters: letters, byLimit: limit, options: node.Options{Bin: bin, Dir: dir}}
	if b.Node, err = node.Start(b.options); err != nil {
		return err
	}
	defer func() { _ = b.Stop() }()
	for _, step := range []func() error{b.publish, b.die, b.warm, b.cold, b.one, b.search, b.replay} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// publish fills the queues in which the messages will die.
func (b *bench) publish() error {
	conn, err := amqp.Dial("amqp://guest:guest@" + b.AMQP)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	for i := range queues {
		if _, err := ch.QueueDeclare(fmt.Sprint("dead", i), true, false, false, false, nil); err != nil {
			return err
		}
		args := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": fmt.Sprint("dead", i)}
		if _, err := ch.QueueDeclare(fmt.Sprint("work", i), true, false, false, false, args); err != nil {
			return err
		}
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	body := bytes.Repeat([]byte("x"), size)
	var last *amqp.DeferredConfirmation
	for i := range b.letters {
		last, err = ch.PublishWithDeferredConfirm("", fmt.Sprint("work", i%queues), false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, Body: body, Headers: amqp.Table{
				"tenant": fmt.Sprint("t", i%7),
				// A group is a queue and a letter: its pattern leaves the number out.
				"x-exception-message": fmt.Sprintf("no %cq for order %d", 'a'+i/queues%(groups/queues), i),
			},
		})
		if err != nil {
			return err
		}
		if i%10_000 == 9_999 {
			last.Wait()
		}
	}
	last.Wait()
	return nil
}

// die has a consumer reject all messages, or lets a limit drop them.
func (b *bench) die() error {
	before, err := b.Usage()
	if err != nil {
		return err
	}
	began := time.Now()
	if b.byLimit {
		err = b.ask(http.MethodPut, "policies/%2F/die", map[string]any{"pattern": "^work", "apply-to": "queues", "definition": map[string]any{"max-length": 0}}, nil)
	} else {
		err = b.reject()
	}
	if err == nil {
		err = b.until(func(n map[string]int) bool { return n["dead"] == b.letters })
	}
	if err == nil {
		err = b.spent("deaths", before, began)
	}
	if b.byLimit && err == nil {
		err = b.ask(http.MethodDelete, "policies/%2F/die", nil, nil)
	}
	return err
}

// reject consumes all messages and rejects each by itself.
func (b *bench) reject() error {
	conn, err := amqp.Dial("amqp://guest:guest@" + b.AMQP)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ends := make(chan error)
	for i := range queues {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		if err := ch.Qos(500, 0, false); err != nil {
			return err
		}
		deliveries, err := ch.Consume(fmt.Sprint("work", i), "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		go func() { // ends when all are rejected, or with the connection
			for range b.letters / queues {
				d, ok := <-deliveries
				if !ok {
					ends <- amqp.ErrClosed
					return
				}
				if err := d.Reject(false); err != nil {
					ends <- err
					return
				}
			}
			ends <- nil
		}()
	}
	for range queues {
		if err := <-ends; err != nil {
			return err
		}
	}
	return nil
}

// until waits until the lengths of the queues, by the letters of their names, are as wanted.
func (b *bench) until(ok func(map[string]int) bool) error {
	for {
		var list []struct {
			Name     string
			Messages int
		}
		if err := b.ask(http.MethodGet, "queues?columns=name,messages", nil, &list); err != nil {
			return err
		}
		n := map[string]int{}
		for _, q := range list {
			n[strings.TrimRight(q.Name, "0123456789")] += q.Messages
		}
		if ok(n) {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (b *bench) spent(what string, before node.Usage, began time.Time) error {
	after, err := b.Usage()
	if err != nil {
		return err
	}
	fmt.Printf("%-28s %.2f µs of CPU each, %.1f s, %d MiB resident\n", what, float64((after.CPU-before.CPU).Microseconds())/float64(b.letters), time.Since(began).Seconds(), after.RSS>>20)
	return nil
}

func (b *bench) restart() (err error) {
	if err := b.Stop(); err != nil {
		return err
	}
	b.Node, err = node.Start(b.options)
	return err
}

// inbox asks until all letters are in the answer.
func (b *bench) inbox() (took time.Duration, rounds int, err error) {
	began := time.Now()
	for {
		var a struct {
			Reading        bool
			Letters, Total int
		}
		if err := b.ask(http.MethodGet, "office/groups?limit=50", nil, &a); err != nil {
			return 0, 0, err
		}
		rounds++
		if !a.Reading {
			if a.Letters != b.letters || a.Total != groups {
				return 0, 0, fmt.Errorf("the inbox has %d letters in %d groups", a.Letters, a.Total)
			}
			return time.Since(began), rounds, nil
		}
	}
}

func (b *bench) warm() error { return b.inboxes("inbox, files in memory") }

// cold drops the pages of the data from the system's memory.
func (b *bench) cold() error {
	if err := b.Stop(); err != nil {
		return err
	}
	err := filepath.WalkDir(b.options.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		_ = f.Sync()
		return forget(f)
	})
	if err != nil {
		return err
	}
	if b.Node, err = node.Start(b.options); err != nil {
		return err
	}
	return b.times("inbox, files on the disk")
}

func (b *bench) inboxes(what string) error {
	if err := b.restart(); err != nil {
		return err
	}
	return b.times(what)
}

func (b *bench) times(what string) error {
	before, err := b.Usage()
	if err != nil {
		return err
	}
	first, rounds, err := b.inbox()
	if err != nil {
		return err
	}
	after, err := b.Usage()
	if err != nil {
		return err
	}
	again, _, err := b.inbox()
	if err != nil {
		return err
	}
	fmt.Printf("%-28s %.2f s (%d answers before), then %.1f ms; %d MiB resident before, %d after\n", what, first.Seconds(), rounds-1, ms(again), before.RSS>>20, after.RSS>>20)
	return nil
}

// one opens single letters in the midst of a queue.
func (b *bench) one() error {
	var page struct{ Items []struct{ ID string } }
	if err := b.ask(http.MethodGet, "office/letters/%2F/dead3?limit=200&where=header.tenant%3Dt5", nil, &page); err != nil {
		return err
	}
	var took []time.Duration
	for _, l := range page.Items {
		began := time.Now()
		if err := b.ask(http.MethodGet, "office/letters/%2F/dead3/"+l.ID, nil, nil); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	fmt.Printf("%-28s %.2f ms, at most %.2f\n", "a letter", ms(took[len(took)/2]), ms(took[len(took)-1]))
	return nil
}

// search streams a filter that nothing passes over all queues, two at a time.
func (b *bench) search() error {
	for name, filter := range map[string]string{"by a header": "where=header.tenant%3Dnone", "by the body": "body=needle", "by the error": "error=card+.*+declined"} {
		began := time.Now()
		room, ends := make(chan struct{}, 2), make(chan error)
		for i := range queues {
			go func() { // ends with the answer
				room <- struct{}{}
				n, err := b.stream(fmt.Sprintf("office/letters/%%2F/dead%d?%s", i, filter))
				<-room
				if err == nil && n != b.letters/queues {
					err = fmt.Errorf("a search %s examined %d letters", name, n)
				}
				ends <- err
			}()
		}
		for range queues {
			if err := <-ends; err != nil {
				return err
			}
		}
		fmt.Printf("%-28s %.0f letters a second\n", "search "+name, float64(b.letters)/time.Since(began).Seconds())
	}
	return nil
}

// stream reads a search to its end and returns how many letters it examined.
func (b *bench) stream(path string) (int, error) {
	q, err := b.request(http.MethodGet, path, nil)
	if err != nil {
		return 0, err
	}
	q.Header.Set("Accept", "application/x-ndjson")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		var line struct{ End *struct{ Examined int } }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return 0, err
		}
		if line.End != nil {
			return line.End.Examined, nil
		}
	}
	return 0, fmt.Errorf("GET %s: it ended without an end: %w", path, lines.Err())
}

// replay sends all letters back, beside a bystander.
func (b *bench) replay() error {
	var names []string
	for i := range queues {
		names = append(names, fmt.Sprint("dead", i))
	}
	request := map[string]any{"action": "replay", "vhost": "/", "queues": names, "reason": "measured"}
	var plan struct {
		Token string
		Count int
	}
	before, err := b.Usage()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.ask(http.MethodPost, "office/jobs?dry_run=true", request, &plan); err != nil {
		return err
	}
	if err := b.spent("dry run of a replay", before, began); err != nil {
		return err
	}
	by, err := bystander.Watch(b.AMQP)
	if err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	alone, err := by.Reset()
	if err != nil {
		return err
	}
	if before, err = b.Usage(); err != nil {
		return err
	}
	began = time.Now()
	request["token"], request["count"] = plan.Token, plan.Count
	var job struct{ ID any }
	if err := b.ask(http.MethodPost, "office/jobs", request, &job); err != nil {
		return err
	}
	for {
		var now struct {
			State, Why string
			Moved      int
		}
		if err := b.ask(http.MethodGet, fmt.Sprint("office/jobs/", job.ID), nil, &now); err != nil {
			return err
		}
		if now.State == "done" && now.Moved == b.letters {
			break
		}
		if now.State != "running" && now.State != "planned" {
			return fmt.Errorf("the job is %s: %s; %d have moved", now.State, now.Why, now.Moved)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := b.spent("replay", before, began); err != nil {
		return err
	}
	during, err := by.Stop()
	if err != nil {
		return err
	}
	fmt.Printf("%-28s p99.9 %.1f ms (%.1f before), at most %.1f\n", "a bystander of the replay", ms(during.At(0.999)), ms(alone.At(0.999)), ms(during.At(1)))
	return b.until(func(n map[string]int) bool { return n["work"] == b.letters && n["dead"] == 0 })
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (b *bench) request(method, path string, body any) (*http.Request, error) {
	var in io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(text)
	}
	q, err := http.NewRequest(method, "http://"+b.HTTP+"/api/"+path, in)
	if err != nil {
		return nil, err
	}
	q.SetBasicAuth("guest", "guest")
	return q, nil
}

// ask makes a request, which must succeed, and decodes the answer.
func (b *bench) ask(method, path string, body, into any) error {
	q, err := b.request(method, path, body)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %.500s", method, path, answer.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
