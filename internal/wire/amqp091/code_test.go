package amqp091

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestBR4_1_HardAndSoftCodes(t *testing.T) {
	for _, soft := range []ReplyCode{311, 312, 313, 403, 404, 405, 406} {
		if soft.Hard() {
			t.Errorf("%v is hard", soft)
		}
	}
	for _, hard := range []ReplyCode{320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541, 999} {
		if !hard.Hard() {
			t.Errorf("%v is soft", hard)
		}
	}
}

func TestBR4_2_CodeNames(t *testing.T) {
	for code, want := range map[uint16]string{
		311: "CONTENT_TOO_LARGE", 312: "NO_ROUTE", 313: "NO_CONSUMERS", 320: "CONNECTION_FORCED", 402: "INVALID_PATH",
		403: "ACCESS_REFUSED", 404: "NOT_FOUND", 405: "RESOURCE_LOCKED", 406: "PRECONDITION_FAILED", 501: "FRAME_ERROR",
		502: "SYNTAX_ERROR", 503: "COMMAND_INVALID", 504: "CHANNEL_ERROR", 505: "UNEXPECTED_FRAME", 506: "RESOURCE_ERROR",
		530: "NOT_ALLOWED", 540: "NOT_IMPLEMENTED", 541: "INTERNAL_ERROR", 999: "999",
	} {
		if got := CodeName(code); got != want {
			t.Errorf("CodeName(%d) = %q, want %q", code, got, want)
		}
	}
}

func TestBR4_3_ReplyTextIsCut(t *testing.T) {
	const prefix = "NOT_FOUND - "
	room := 255 - len(prefix)
	if got := ReplyText(CodeNotFound, strings.Repeat("x", room)); len(got) != 255 || strings.HasSuffix(got, "...") {
		t.Errorf("a text that fits was cut to %d bytes", len(got))
	}
	got := ReplyText(CodeNotFound, strings.Repeat("x", room+1))
	if want := prefix + strings.Repeat("x", room-3) + "..."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for shift := range 4 {
		got := ReplyText(CodeNotFound, strings.Repeat("x", shift)+strings.Repeat("€", 100))
		if !utf8.ValidString(got) || len(got) > 255 || len(got) < 253 || !strings.HasSuffix(got, "€...") {
			t.Errorf("shifted by %d: cut to %q", shift, got)
		}
	}
}

// Clients read what the server says as UTF-8, whatever a client has said that is in it.
func TestBR4_3_ReplyTextIsUTF8(t *testing.T) {
	for _, text := range []string{"\xff\xfe", "no queue '\xc3'", strings.Repeat("é", 200) + "\xff", "\xff" + strings.Repeat("€", 100), strings.Repeat("\x80", 300)} {
		if got := ReplyText(CodeNotFound, text); !utf8.ValidString(got) || len(got) > 255 || !strings.HasPrefix(got, "NOT_FOUND - ") {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}
