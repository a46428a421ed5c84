package serving

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// words is a session whose items are words. Whoever is paused is a producer.
type words struct {
	out      Output[string, *producer]
	sock     Socket
	encoding func(word string) // called before each
}

func (w *words) Encode(it *string) {
	if w.encoding != nil {
		w.encoding(*it)
	}
	if w.out.Failed() {
		w.out.Keep(it)
		return
	}
	w.out.Wire = append(w.out.Wire, *it...)
	w.out.Sent(len(*it))
}

func (w *words) Resumable(*producer) bool   { return w.out.Pending() < LowWater }
func (w *words) Resume(p *producer)         { p.resumed.Add(1); p.goc <- struct{}{} }
func (w *words) AppendBeat(b []byte) []byte { return append(b, '*') }
func (w *words) say(word string)            { w.out.Put(func(b []byte) []byte { return append(b, word...) }) }
func (w *words) drained() (list []string) {
	w.out.Drain(func(it *string) { list = append(list, *it); w.out.Sent(len(*it)) })
	return list
}
func (w *words) deliver(word string) (more bool) { return w.out.Deliver(&word, len(word), 0) }

// producer is who is paused.
type producer struct {
	goc     chan struct{}
	resumed atomic.Int64
}

// speaking is a session that writes into nc.
func speaking(nc net.Conn) *words {
	w := &words{}
	w.sock.Init(nc, nil, slog.New(slog.DiscardHandler))
	w.out.Init(&w.sock, w)
	return w
}

// connected are the two ends of a connection. That of the session can be written without blocking if it is a socket.
func connected(t *testing.T, socket bool) (near, far net.Conn) {
	t.Helper()
	if !socket {
		return net.Pipe()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if far, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// Whatever is put in comes out, in order, whoever sends it: the one that puts it in, the writer, or whoever has the pen just then.
// Ready bytes and items keep their places.
func TestEverythingIsSentInOrder(t *testing.T) {
	for name, socket := range map[string]bool{"socket": true, "blocking": false} {
		t.Run(name, func(t *testing.T) {
			near, far := connected(t, socket)
			w := speaking(near)
			w.out.Start()
			var got []byte
			var client sync.WaitGroup
			client.Go(func() { got, _ = io.ReadAll(far) })
			const each = 2000
			var all sync.WaitGroup
			for g := range 4 {
				all.Go(func() {
					for k := range each {
						word := fmt.Sprintf("%d:%d ", g, k)
						switch k % 3 {
						case 0:
							w.say(word)
						case 1:
							w.deliver(word)
						case 2:
							w.out.PutItem(&word, len(word))
						}
						w.out.Flush(k%2 == 0)
						if k%100 == 0 {
							runtime.Gosched()
						}
					}
				})
			}
			all.Wait()
			w.out.End()
			w.sock.Close(false)
			client.Wait()
			next := map[int]int{}
			for _, word := range strings.Fields(string(got)) {
				var g, k int
				if _, err := fmt.Sscanf(word, "%d:%d", &g, &k); err != nil || next[g] != k {
					t.Fatalf("%q came when %d:%d was due", word, g, next[g])
				}
				next[g]++
			}
			for g := range 4 {
				if next[g] != each {
					t.Errorf("%d words of %d came from %d", next[g], each, g)
				}
			}
			if left := w.drained(); len(left) > 0 {
				t.Errorf("%d words are left", len(left))
			}
		})
	}
}

// No wake-up is lost: each of many that put one thing in, and wait until it has come, gets on.
func TestNoWakeUpIsLost(t *testing.T) {
	near, far := connected(t, true)
	w := speaking(near)
	w.out.Start()
	var waiting [4]chan struct{}
	for g := range waiting {
		waiting[g] = make(chan struct{})
	}
	var client sync.WaitGroup
	client.Go(func() {
		var b [64]byte
		for {
			n, err := far.Read(b[:])
			for _, c := range b[:n] {
				waiting[c-'0'] <- struct{}{}
			}
			if err != nil {
				return
			}
		}
	})
	var all sync.WaitGroup
	for g := range waiting {
		all.Go(func() {
			late := time.NewTimer(time.Minute)
			for k := range 3000 {
				if k%2 == 0 {
					w.say(string(rune('0' + g)))
				} else {
					w.deliver(string(rune('0' + g)))
				}
				w.out.Flush((k+g)%3 > 0)
				select {
				case <-waiting[g]:
				case <-late.C:
					t.Errorf("the %d. thing of %d does not come", k, g)
					_ = far.Close()
					return
				}
			}
		})
	}
	all.Wait()
	w.out.End()
	w.sock.Close(false)
	client.Wait()
}

// A client that reads nothing has a bounded amount wait: who delivers is paused, and the reader reads nothing more. When the client
// reads all comes, and both go on.
func TestAClientThatReadsNothingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		w := speaking(near)
		w.out.Start()
		const size = 10_000
		word := strings.Repeat("x", size)
		p := &producer{goc: make(chan struct{}, 1)}
		sent, answered := 0, 0
		const words, answers = 3000, 1000
		go func() {
			for range words {
				more := w.deliver(word)
				sent++
				w.out.Flush(true)
				if !more {
					w.out.Pause(p)
					<-p.goc
				}
			}
		}()
		go func() { // the reader
			for range answers {
				w.say(word)
				answered++
				w.out.Flush(true)
				w.out.WaitForRoom()
			}
		}()
		synctest.Wait()
		if w.out.Pending() > HighWater+size || sent*size < HighWater || sent*size > 2*HighWater+size {
			t.Errorf("%d bytes wait for a client that reads nothing, %d were delivered", w.out.Pending(), sent*size)
		}
		if answered*size < MaxOwed || answered*size > 2*(MaxOwed+size) {
			t.Errorf("%d bytes of answers wait", answered*size)
		}
		got := make(chan int64)
		go func() {
			n, _ := io.Copy(io.Discard, far)
			got <- n
		}()
		synctest.Wait()
		if sent != words || answered != answers {
			t.Errorf("%d of %d words and %d of %d answers were put in for a client that reads", sent, words, answered, answers)
		}
		if p.resumed.Load() == 0 {
			t.Error("nobody was paused")
		}
		w.out.End()
		w.sock.Close(false)
		if n := <-got; n != (words+answers)*size {
			t.Errorf("%d bytes came of %d", n, (words+answers)*size)
		}
	})
}

// Nobody who is paused is forgotten, even if the client has taken everything before.
func TestWhoIsPausedLateGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		w := speaking(near)
		w.out.Start()
		p := &producer{goc: make(chan struct{}, 1)}
		w.out.Pause(p)
		synctest.Wait()
		if p.resumed.Load() != 1 {
			t.Errorf("resumed %d times, want once", p.resumed.Load())
		}
		_ = far.Close()
		w.out.End()
		w.sock.Close(false)
	})
}

// The reader is woken where it waits for room, if it is interrupted, and if the socket breaks.
func TestAReaderThatWaitsForRoomIsInterrupted(t *testing.T) {
	for name, interrupt := range map[string]func(w *words){"interrupted": func(w *words) { w.sock.Interrupt() }, "broken": func(w *words) { w.sock.Break() }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				w := speaking(near)
				w.say(strings.Repeat("x", MaxOwed+1))
				done := false
				go func() { w.out.WaitForRoom(); done = true }()
				synctest.Wait()
				if done {
					t.Error("there is room")
				}
				interrupt(w)
				synctest.Wait()
				if !done {
					t.Error("the reader still waits")
				}
				_, _ = near.Close(), far.Close()
			})
		})
	}
}

// A client that takes nothing is disconnected after writeTimeout; one that takes a little now and then gets a large message whole.
func TestTheWriteDeadline(t *testing.T) {
	for name, reads := range map[string]bool{"reads nothing": false, "reads slowly": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				w := speaking(near)
				w.out.Start()
				const size = 20 * writePiece
				w.deliver(strings.Repeat("x", size))
				w.out.Flush(false)
				begun := time.Now()
				came := 0
				if reads {
					go func() {
						b := make([]byte, writePiece)
						for {
							time.Sleep(writeTimeout / 10)
							n, err := far.Read(b[:writePiece/4])
							if came += n; err != nil {
								return
							}
						}
					}()
				}
				if !reads {
					time.Sleep(2 * writeTimeout)
					synctest.Wait()
					if !w.sock.Dead() {
						t.Fatalf("the client may read nothing for %v", time.Since(begun))
					}
					if _, err := w.sock.Fill(true); err == nil {
						t.Error("the reader does not hear of it")
					}
				} else {
					time.Sleep(10 * writeTimeout)
					synctest.Wait()
					if w.sock.Dead() || came != size {
						t.Errorf("dead: %v; %d bytes of %d came", w.sock.Dead(), came, size)
					}
				}
				w.out.End()
				w.sock.Close(false)
				_ = far.Close()
			})
		})
	}
}

// The end of a connection whose client reads nothing takes LastWords, also if the output is full; what was not sent comes back.
func TestTheEndWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		w := speaking(near)
		w.out.Start()
		word := strings.Repeat("x", WriteSize)
		put := 0
		for more := true; more; put++ {
			more = w.deliver(word)
		}
		p := &producer{goc: make(chan struct{}, 1)}
		w.out.Pause(p)
		w.out.Flush(false)
		synctest.Wait()
		begun := time.Now()
		w.out.End()
		if took := time.Since(begun); took != LastWords {
			t.Errorf("the end took %v, want %v", took, LastWords)
		}
		w.sock.Close(false)
		if back := w.drained(); len(back) != put-1 { // one was encoded
			t.Errorf("%d words of %d came back", len(back), put)
		}
		if w.out.Pending() != 0 || p.resumed.Load() != 0 {
			t.Errorf("%d bytes wait at the end, and %d were resumed", w.out.Pending(), p.resumed.Load())
		}
		if w.out.PutItem(&word, 1) || w.out.Offer(&word, 1) {
			t.Error("an output that has ended takes something")
		}
		_ = far.Close()
	})
}

// ending is a socket whose reader ends while the writer sets a deadline.
type ending struct {
	net.Conn
	s  *Socket
	by time.Time
}

func (e *ending) SetWriteDeadline(at time.Time) error {
	e.by = at
	select {
	case <-e.s.ended:
	default:
		e.s.end()
		e.by = at // it comes after that of the end
	}
	return nil
}

// The writer takes no time that the end of its connection has not left it.
func TestTheLastDeadlineStands(t *testing.T) {
	e := &ending{s: &Socket{}}
	e.s.Init(e, nil, slog.New(slog.DiscardHandler))
	e.s.extendWriteDeadline()
	if left := time.Until(e.by); left > LastWords {
		t.Errorf("a client that reads nothing has %v, want %v", left, LastWords)
	}
}

// The end waits for whoever has the pen, who may be reading from disk into memory that the end gives to somebody else. What it could
// not send comes back, and what others left to it is sent.
func TestTheEndWaitsForThePen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		w := speaking(near)
		w.out.Start()
		letGo := w.out.Halt()
		w.out.Wire = append(w.out.Wire, "half a frame"...) // what the socket did not take
		w.say(", the last words")
		var got []byte
		var client sync.WaitGroup
		client.Go(func() { got, _ = io.ReadAll(far) })
		ended := false
		go func() { w.out.End(); w.sock.Close(false); ended = true }()
		synctest.Wait()
		if ended {
			t.Error("it has ended while another has the pen")
		}
		kept := "unreadable"
		w.out.Keep(&kept)
		letGo()
		synctest.Wait()
		client.Wait()
		if string(got) != "half a frame, the last words" || !ended {
			t.Errorf("%q came; ended: %v", got, ended)
		}
		if back := w.drained(); len(back) != 1 || back[0] != kept {
			t.Errorf("%q came back", back)
		}
	})
}

// Whoever has the pen may lay it down right after the writer has looked for the last time: what is left to the writer then is sent
// all the same.
func TestTheLastWordsAreSentByWhoKeepsThePen(t *testing.T) {
	near, far := net.Pipe()
	w := speaking(near)
	w.out.held = true // as of a partition that sends a delivery
	w.say("close")
	w.out.writeAll() // the pen is not there
	w.out.held = false
	w.out.Wire = append(w.out.Wire, "half a frame, "...) // what the socket did not take of the delivery
	var got []byte
	var client sync.WaitGroup
	client.Go(func() { got, _ = io.ReadAll(far) })
	if !w.out.keep() {
		t.Fatal("nobody has the pen, and it could not be kept")
	}
	w.out.writeTaken()
	if err := near.Close(); err != nil {
		t.Fatal(err)
	}
	client.Wait()
	if want := "half a frame, close"; string(got) != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// A connection that is to be closed because a message can neither be read nor set aside keeps what is behind it until its consumers
// are gone: none of them is resumed, and the writer, who has nothing to send, waits for the end.
func TestTheWriterDoesNotWaitForRoomThatWhatIsUnsentTakes(t *testing.T) {
	for name, pending := range map[string]int64{"full": HighWater, "nearly empty": 1} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			w := speaking(near)
			w.out.unsent = []string{"unreadable"}
			w.out.pending.Store(pending)
			w.out.paused = []*producer{nil} // to resume it panics
			w.out.writeAll()
			if len(w.out.paused) > 0 || w.out.held {
				t.Errorf("%d wait, the pen is held: %v", len(w.out.paused), w.out.held)
			}
			_, _ = near.Close(), far.Close()
		})
	}
}

// Many ready bytes in an item are not copied into what is encoded; they keep their place.
func TestManyReadyBytesKeepTheirPlace(t *testing.T) {
	near, far := net.Pipe()
	w := speaking(near)
	many := strings.Repeat("y", 2*WriteSize)
	w.encoding = func(word string) {
		if word == "many" {
			w.out.Append([]byte(many))
			if cap(w.out.Wire) >= WriteSize {
				t.Error("they were copied")
			}
		}
	}
	w.deliver("a")
	w.deliver("many")
	w.deliver("z")
	w.out.Start()
	var got []byte
	var client sync.WaitGroup
	client.Go(func() { got, _ = io.ReadAll(far) })
	w.out.Flush(false)
	w.out.End()
	w.sock.Close(false)
	client.Wait()
	if want := "a" + many + "manyz"; string(got) != want {
		t.Errorf("%d bytes came, want %d in order", len(got), len(want))
	}
}

// A client that wants to hear something hears it when there is nothing else to say, twice as often.
func TestTheWriterBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		w := speaking(near)
		w.out.Start()
		var got bytes.Buffer
		go func() { _, _ = io.Copy(&got, far) }()
		w.out.Beat(10 * time.Second)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if got.String() != strings.Repeat("*", 12) {
			t.Errorf("%q came in a minute, want 12 beats", got.String())
		}
		w.out.End()
		w.sock.Close(false)
		_ = far.Close()
	})
}

// A socket that breaks fails for good: nothing more is written, deliveries are kept, and the reader hears of it.
func TestABrokenSocketKeepsDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		w := speaking(near)
		w.out.Start()
		_ = far.Close()
		w.deliver("encoded")
		w.out.Flush(true)
		synctest.Wait()
		w.deliver("kept")
		w.deliver("too")
		w.out.Flush(true)
		synctest.Wait()
		if _, err := w.sock.Fill(true); !w.sock.Dead() || err == nil || errors.Is(err, ErrInterrupted) {
			t.Errorf("dead: %v; the reader gets %v", w.sock.Dead(), err)
		}
		w.out.End()
		w.sock.Close(false)
		if back := w.drained(); fmt.Sprint(back) != "[kept too]" || w.out.Pending() != 0 {
			t.Errorf("%q came back, %d bytes wait", back, w.out.Pending())
		}
	})
}
