package cluster

import (
	"fmt"
	"log/slog"
)

// raftLogger passes on what Raft says at warning and above; its chatter about
// elections and rejections is for debugging Raft.
type raftLogger struct{ l *slog.Logger }

func (raftLogger) Debug(...any)          {}
func (raftLogger) Debugf(string, ...any) {}
func (raftLogger) Info(...any)           {}
func (raftLogger) Infof(string, ...any)  {}

// A refused proposal is a warning to Raft and everyday to us: callers get the error.
func (raftLogger) Warning(...any)          {}
func (raftLogger) Warningf(string, ...any) {}

func (r raftLogger) Error(v ...any)            { r.l.Error("raft", "text", fmt.Sprint(v...)) }
func (r raftLogger) Errorf(f string, v ...any) { r.l.Error("raft", "text", fmt.Sprintf(f, v...)) }

// Raft panics where an invariant of its own is broken. So do we.
func (raftLogger) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (raftLogger) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (raftLogger) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (raftLogger) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
