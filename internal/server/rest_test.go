package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/controlsocket"
	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/broker"
)

// ask sends a request through the control socket of a data directory.
func ask(t *testing.T, dir, method, path, body string) (status int, answer string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return controlsocket.Dial(ctx, dir) },
	}}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://node/api/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// An application that is stopped (rabbitmqctl stop_app) holds its data directory, answers on its control socket alone, and has
// everything when it starts again.
func TestAnApplicationStopsAndStartsAgain(t *testing.T) {
	dir := t.TempDir()
	o, _ := options(dir)
	rest := make(chan struct{}, 2)
	o.OnStopApp = func() { rest <- struct{}{} }
	s := mustStart(t, o)
	closed := leaveMessage(t, s)
	if status, text := ask(t, dir, "POST", "control/start-app", "{}"); status != http.StatusNoContent {
		t.Errorf("the start of one that runs is answered %d %s", status, text)
	}
	at := "http://" + s.Addresses().HTTP.String() + "/api/control/stop-app"
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, at, strings.NewReader("{}"))
	r.SetBasicAuth("guest", "guest")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("over the network the stop of the application is answered %d", res.StatusCode)
	}
	if status, text := ask(t, dir, "POST", "control/stop-app", "{}"); status != http.StatusNoContent {
		t.Fatalf("the stop of the application is answered %d %s", status, text)
	}
	<-rest
	stopped, err := s.StopApp()
	if err != nil {
		t.Fatal(err)
	}
	if e := <-closed; e == nil || e.Code != amqp.ConnectionForced {
		t.Errorf("the client was told %v", e)
	}
	if _, err := net.Dial("tcp", s.Addresses().AMQP[0].String()); err == nil {
		t.Error("clients can still connect")
	}
	if _, err := os.Stat(filepath.Join(dir, upFile)); err == nil {
		t.Error("it is marked as running: a kill would look like one of a node at work")
	}
	if _, err := Start(o); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("another node on the directory: %v", err)
	}
	type end struct {
		start bool
		err   error
	}
	var notReady error // only changed while nobody asks
	wait := func(ends <-chan struct{}) <-chan end {
		ended := make(chan end, 1)
		begun := make(chan struct{})
		go func() {
			close(begun)
			start, err := stopped.Wait(ends, func() error { return notReady })
			ended <- end{start, err}
		}()
		<-begun
		for {
			if c, err := controlsocket.Dial(t.Context(), dir); err == nil {
				_ = c.Close()
				return ended
			}
		}
	}
	ended := wait(nil)
	for _, path := range []string{"whoami", "queues", "control/log-level"} {
		if status, text := ask(t, dir, "GET", path, ""); status != http.StatusServiceUnavailable || !strings.Contains(text, `"`+api.AppStopped+`"`) || !strings.Contains(text, "start_app") {
			t.Errorf("%s is answered %d %s", path, status, text)
		}
	}
	if status, _ := ask(t, dir, "POST", "control/stop-app", "{}"); status != http.StatusNoContent {
		t.Errorf("another stop is answered %d", status)
	}
	notReady = errors.New("a line is wrong")
	if status, text := ask(t, dir, "POST", "control/start-app", "{}"); status != http.StatusServiceUnavailable || !strings.Contains(text, "stays stopped: a line is wrong") {
		t.Errorf("a start that is not possible is answered %d %s", status, text)
	}
	notReady = nil
	if status, _ := ask(t, dir, "POST", "control/start-app", "{}"); status != http.StatusNoContent {
		t.Errorf("the start is answered %d", status)
	}
	if e := <-ended; !e.start || e.err != nil {
		t.Fatalf("it waited until %v, want a start", e)
	}
	if s, err = stopped.Start(o); err != nil {
		t.Fatal(err)
	}
	findMessage(t, s)

	// It may end while it is stopped, and others may have the directory then.
	if stopped, err = s.StopApp(); err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	stopped.options.OnStop = func() { close(asked) }
	ended = wait(asked)
	if status, _ := ask(t, dir, "POST", "control/stop", "{}"); status != http.StatusNoContent {
		t.Errorf("the end is answered %d", status)
	}
	if e := <-ended; e.start || e.err != nil {
		t.Errorf("it waited until %v, want an end", e)
	}
	if err := stopped.Close(); err != nil {
		t.Error(err)
	}
	mustStop(t, mustStart(t, o))
}

// What cannot start again leaves the directory to others.
func TestAnApplicationThatCannotStartAgain(t *testing.T) {
	dir := t.TempDir()
	o, _ := options(dir)
	s := mustStart(t, o)
	stopped, err := s.StopApp()
	if err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	again := o
	again.AMQP = []string{taken.Addr().String()}
	if s, err = stopped.Start(again); err == nil {
		mustStop(t, s)
		t.Fatal("it started on a port that is taken")
	}
	_ = taken.Close()
	mustStop(t, mustStart(t, o))

	o.FS = vfs.NewMem()
	if _, err := mustStart(t, o).StopApp(); err == nil {
		t.Error("a node in memory has stopped its application")
	}
}

// BR-13.1: an alarm that an operator has raised stays until he takes it back, whatever memory and disk say.
func TestAlarmsByHand(t *testing.T) {
	dir := t.TempDir()
	o, log := options(dir)
	s := mustStart(t, o)
	defer mustStop(t, s)
	put := func(body string, want int) {
		t.Helper()
		if status, text := ask(t, dir, "PUT", "control/alarm", body); status != want {
			t.Errorf("%s is answered %d %s, want %d", body, status, text, want)
		}
	}
	active := func(want broker.Alarm) {
		t.Helper()
		s.look()
		if got := s.broker.ActiveAlarms(); got != want {
			t.Errorf("alarms %v, want %v", got, want)
		}
	}
	put(`{"alarm":"memory","active":true}`, 204)
	active(broker.Memory)
	put(`{"alarm":"disk","active":true}`, 204)
	active(broker.Memory | broker.Disk)
	put(`{"alarm":"memory","active":false}`, 204)
	active(broker.Disk)
	for _, wrong := range []string{`{}`, `{"alarm":"file","active":true}`, `{"alarm":"disk"}`, `{"alarm":"disk","active":"no"}`, `{"alarm":1,"active":true}`} {
		put(wrong, 400)
	}
	active(broker.Disk)
	if err := s.setLimit(&s.memory)(0, 1); err != nil { // now memory is short, too
		t.Fatal(err)
	}
	put(`{"alarm":"memory","active":false}`, 204)
	put(`{"alarm":"disk","active":false}`, 204)
	active(broker.Memory)
	if !strings.Contains(log.String(), "by_hand=true") {
		t.Error("the log does not say that somebody has raised it")
	}
}
