package repair

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

// killed is what a node with a queue of each kind leaves when it is killed after n messages to each.
func killed(t *testing.T, n int, checkpoint bool) *vfs.MemFS {
	t.Helper()
	files := vfs.NewCrashableMem()
	b, c := start(t, files)
	defer stop(t, b)
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"classic", "quorum"} {
		if _, err := c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(kind), Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: kind}}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		publish(t, c, "classic", body("classic", i))
		publish(t, c, "quorum", body("quorum", i))
	}
	if checkpoint {
		if err := b.Node().Checkpoint(); err != nil {
			t.Fatal(err)
		}
	}
	return files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// overwrite puts bytes into a file.
func overwrite(t *testing.T, files vfs.FS, path string, offset int64, b []byte) {
	t.Helper()
	f, err := files.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, offset)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// counted is the number of messages of each kind.
func counted(t *testing.T, files vfs.FS) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, bodies := range all(t, files) {
		for _, text := range bodies {
			kind, _, _ := strings.Cut(text, " ")
			count[kind]++
		}
	}
	return count
}

// The log of declarations has lost its end, all of it in one block or the last declaration, and nothing in it shows
// that. The journal knows. A start refuses to drop the messages of queues without a declaration, and a repair brings
// them back.
func TestTheLogOfDeclarationsThatLostItsEnd(t *testing.T) {
	block := make([]byte, 4096)
	rubbish := make([]byte, 4096)
	for i := range rubbish {
		rubbish[i] = byte(rand.New(rand.NewPCG(1, uint64(i))).Uint32())
	}
	for name, spoil := range map[string]func(t *testing.T, files vfs.FS, path string, last int64){
		"zeros":   func(t *testing.T, files vfs.FS, path string, _ int64) { overwrite(t, files, path, 8192, block) },
		"rubbish": func(t *testing.T, files vfs.FS, path string, _ int64) { overwrite(t, files, path, 8192, rubbish) },
		"header": func(t *testing.T, files vfs.FS, path string, _ int64) {
			overwrite(t, files, path, 0, make([]byte, 8192))
		},
		"a bit of the last":       func(t *testing.T, files vfs.FS, path string, last int64) { rot(t, files, path, last) },
		"the last and all behind": func(t *testing.T, files vfs.FS, path string, last int64) { overwrite(t, files, path, last, block) },
	} {
		for _, checkpoint := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				files := killed(t, 30, checkpoint)
				path, last := whereIs(t, files, `"name":"quorum"`)
				spoil(t, files, path, last)
				_, err := broker.Open(broker.Options{FS: files, Dir: dataDir})
				if err == nil || !strings.Contains(err.Error(), stateLogDir) || !strings.Contains(err.Error(), "bartleby journal check --data-dir data") {
					t.Fatalf("a start says %v", err)
				}
				r := examined(t, files, SkipFrame)
				if r.Clean() || r.Failed != "" || !strings.HasPrefix(r.Damages[0].File, dataDir+"/"+stateLogDir) {
					t.Fatalf("the check: %+v", r)
				}
				out := repaired(t, files, SkipFrame)
				if got := counted(t, files); got["classic"] != 30 || got["quorum"] != 30 {
					t.Errorf("found %v, want 30 of each\n%s", got, out)
				}
			})
		}
	}
}
