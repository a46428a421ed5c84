// Command browse looks at everything that the Dead Letter Office of a node shows, as fast as it can, until it is interrupted: what
// is played against the node meanwhile must come out as if nobody looked (docs/internals/office.md: reading changes nothing).
//
//	go run ./test/browse http://guest:guest@localhost:15672
//
// At the end it says how many answers it got, and ends with 1 if one was not what a reader may get.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	readers = 2 // at a time
	most    = 20
)

// browser reads with one reader.
type browser struct {
	base    *url.URL
	answers *atomic.Int64
	letters *atomic.Int64
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: browse http://USER:PASSWORD@HOST:PORT")
		os.Exit(2)
	}
	base, err := url.Parse(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var answers, letters atomic.Int64
	var failed atomic.Value
	var work sync.WaitGroup
	for range readers {
		work.Go(func() {
			b := &browser{base, &answers, &letters}
			for ctx.Err() == nil {
				if err := b.round(ctx); err != nil && ctx.Err() == nil {
					failed.CompareAndSwap(nil, err.Error())
				}
			}
		})
	}
	work.Wait()
	fmt.Printf("browse: %d answers, %d of them of one letter\n", answers.Load(), letters.Load())
	if text := failed.Load(); text != nil {
		fmt.Println("browse:", text)
		os.Exit(1)
	}
}

// round looks at each virtual host once.
func (b *browser) round(ctx context.Context) error {
	var hosts []struct{ Name string }
	if err := b.get(ctx, &hosts, "vhosts"); err != nil {
		return err
	}
	var queues []struct{ VHost, Name string }
	for _, path := range []string{"office/queues", "office/groups", "office/drops", "office/jobs", "office/retries"} {
		if err := b.get(ctx, nil, path); err != nil {
			return err
		}
	}
	for _, h := range hosts {
		host := url.PathEscape(h.Name)
		if err := b.get(ctx, nil, "office/groups/"+host+"?sort=last"); err != nil {
			return err
		}
		if err := b.get(ctx, &queues, "queues/"+host+"?disable_stats=true"); err != nil {
			return err
		}
		for _, q := range queues {
			if err := b.queue(ctx, host+"/"+url.PathEscape(q.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// queue lists letters from both ends, searches, and opens some of them.
func (b *browser) queue(ctx context.Context, path string) error {
	var page struct{ Items []struct{ ID string } }
	for _, filter := range []string{"order=newest", "order=oldest&body=nothing+has+this", "where=header.none", "order=oldest"} {
		if err := b.get(ctx, &page, fmt.Sprintf("office/letters/%s?limit=%d&%s", path, most, filter)); err != nil {
			return err
		}
	}
	for _, l := range page.Items {
		for _, part := range []string{"", "/body"} {
			if err := b.get(ctx, nil, "office/letters/"+path+"/"+l.ID+part); err != nil {
				return err
			}
		}
		b.letters.Add(1)
	}
	return nil
}

// lockedOut is in the answer about an exclusive queue of another connection, which a list still shows.
const lockedOut = "cannot obtain exclusive access to locked queue"

// get asks for a resource. What has gone meanwhile, or is not the reader's, and a node that is being restarted, is no error: into is then empty.
func (b *browser) get(ctx context.Context, into any, path string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base.Scheme+"://"+b.base.Host+"/api/"+path, http.NoBody)
	if err != nil {
		return err
	}
	password, _ := b.base.User.Password()
	q.SetBasicAuth(b.base.User.Username(), password)
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		select { // the node is not there
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
		return nil
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil
	}
	switch code := answer.StatusCode; {
	case code == http.StatusOK:
		b.answers.Add(1)
	case code == http.StatusNotFound, code == http.StatusGone, code == http.StatusUnauthorized, // of a virtual host that is only being made
		code == http.StatusBadRequest && bytes.Contains(body, []byte(lockedOut)):
		return nil
	default:
		return fmt.Errorf("GET %s: %s: %.300s", path, answer.Status, body)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return errors.Join(fmt.Errorf("GET %s", path), err)
	}
	return nil
}
