package apidiff

import (
	"os"
	"strings"
	"testing"
)

// BR-16: what RabbitMQ exports is imported, and exported again it is the same. When
// the shapes are recorded, so is the export, and ours goes back into RabbitMQ.
func TestDefinitionsRoundTrip(t *testing.T) {
	peer := target{*peerHTTP, *peerAMQP, *peerMetrics}
	if *record {
		recordDefinitions(t, peer)
	}
	text, err := os.ReadFile(definitionsFile)
	if err != nil {
		t.Fatal(err)
	}
	want, err := parseDefinitions(text)
	if err != nil {
		t.Fatal(err)
	}
	ours := start(t, "")
	got := roundTrip(t, ours, text)
	if d := want.differences(got); d != nil {
		t.Errorf("our export differs from the import (- is RabbitMQ, + is ours):\n%s", strings.Join(d, "\n"))
	}
	if !*record {
		return
	}
	back := roundTrip(t, peer, got.text())
	if err := peer.wipe(); err != nil {
		t.Error(err)
	}
	if d := want.differences(back); d != nil {
		t.Errorf("RabbitMQ makes something else of our export (- is what it exported, + what it exports now):\n%s", strings.Join(d, "\n"))
	}
}

// roundTrip imports definitions and exports them again.
func roundTrip(t *testing.T, at target, text []byte) definitions {
	t.Helper()
	if err := at.importDefinitions(text); err != nil {
		t.Fatal(err)
	}
	d, err := at.exportDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func recordDefinitions(t *testing.T, peer target) {
	t.Helper()
	closeAll, err := peer.build()
	if err != nil {
		t.Fatal(err)
	}
	d, err := peer.exportDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(definitionsFile, d.text(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := closeAll(); err != nil {
		t.Error(err)
	}
	if err := peer.wipe(); err != nil {
		t.Error(err)
	}
}
