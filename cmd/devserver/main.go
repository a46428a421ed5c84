package main

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"

	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/session091"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	b, err := broker.Open(broker.Options{Dir: os.Args[1], Logger: log, OnFatal: func(err error) { panic(err) }})
	if err != nil {
		panic(err)
	}
	if b.Empty() {
		if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
			panic(err)
		}
	}
	go http.ListenAndServe("127.0.0.1:6060", nil)
	l, err := net.Listen("tcp", "127.0.0.1:5672")
	if err != nil {
		panic(err)
	}
	for {
		nc, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			var first [8]byte
			if _, err := io.ReadFull(nc, first[:]); err != nil {
				nc.Close()
				return
			}
			session091.Serve(nc, first[:], session091.Options{Broker: b, Logger: log, Version: "4.3.6"})
		}()
	}
}
